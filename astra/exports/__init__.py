"""The SFT set in the forms that other trainers read: TRL, ShareGPT (LLaMA-Factory), ms-swift, Parquet."""
