"""Which tool's result can fill which tool's parameter: values, evidence, neighbours across servers, walks, drawings."""
