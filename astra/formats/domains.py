"""A domain for a server whose document names none: from the words of its names and descriptions.

A domain is given only where its words clearly lead; elsewhere the server stays unclassified rather than mislabelled.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

DOMAINS: dict[str, str] = {
    "software development": (
        "git repository repositories branch commit pull merge code codebase issue issues deploy build debug "
        "compiler package npm api endpoint docker container kubernetes ci pipeline lint test tests"
    ),
    "data and databases": (
        "sql database databases table tables query schema postgres mysql sqlite mongodb redis row rows column "
        "dataset warehouse index bigquery"
    ),
    "files and documents": (
        "file files directory directories folder document documents pdf word spreadsheet csv excel read write "
        "path upload download archive"
    ),
    "web and search": (
        "web url page pages html browser crawl crawler scrape scraping search website link links screenshot "
        "navigate click"
    ),
    "communication": (
        "email emails mail message messages chat slack channel inbox sms send reply contact contacts thread"
    ),
    "calendar and tasks": (
        "calendar event events meeting meetings schedule reminder reminders todo task tasks project kanban "
        "appointment agenda"
    ),
    "finance": (
        "stock stocks price prices market portfolio trading trade currency exchange bank payment payments "
        "invoice account balance crypto bitcoin token wallet budget loan"
    ),
    "e-commerce": (
        "product products cart order orders shop shopping catalogue catalog checkout shipping customer price "
        "inventory store"
    ),
    "travel and transport": (
        "flight flights airport hotel hotels booking train route routes ferry bus trip travel ticket "
        "departure arrival passenger vehicle"
    ),
    "weather and environment": (
        "weather forecast temperature humidity wind rain climate pollen air quality sensor river gauge tide"
    ),
    "maps and geography": (
        "map maps location latitude longitude coordinates geocode address city country distance directions places"
    ),
    "health": (
        "patient patients doctor clinic medical health drug symptom hospital nutrition diagnosis medication fitness"
    ),
    "education": ("course courses student students lesson school university exam quiz learning teacher grade"),
    "media and entertainment": (
        "movie movies film music song songs album artist video videos playlist game games podcast episode tv"
    ),
    "images and design": ("image images picture photo design figma icon color colour render canvas drawing svg"),
    "news and knowledge": (
        "news article articles wikipedia encyclopedia paper papers arxiv citation knowledge facts book books library"
    ),
    "social networks": (
        "tweet tweets post posts follower followers social profile profiles hashtag instagram youtube reddit"
    ),
    "mathematics": (
        "calculate calculator equation matrix sum add multiply divide integral arithmetic math statistics number"
    ),
    "time": ("time timezone clock date dates zone duration timestamp"),
    "food": ("recipe recipes ingredient ingredients restaurant meal meals menu cook cooking food"),
    "smart home": ("light lights thermostat device devices lamp sensor home room switch camera alarm"),
    "security": ("vulnerability vulnerabilities cve malware threat password scan firewall certificate encrypt decrypt"),
    "language": ("translate translation language languages grammar dictionary synonym word words sentence"),
    "memory": ("memory entity entities relation relations graph node nodes observation observations remember recall"),
}
"""Domain -> words that speak for it."""

LEAST = 3
"""Different words that must speak for a domain."""
LEAD = 1.5
"""How many times as strong as the next domain it must be."""

_WORD = re.compile(r"[^\W\d_]+")
_DOMAINS_OF: dict[str, list[str]] = {}
for _domain, _words in DOMAINS.items():
    for _word in set(_words.split()):
        _DOMAINS_OF.setdefault(_word, []).append(_domain)


def domain_of(about: Iterable[str], tools: Iterable[str]) -> str | None:
    """The domain that a server's own texts and its tools' texts speak for; None where none clearly leads.

    Each of the server's texts counts three times; a word counts once a text, and less the more domains share it.
    """
    scores: defaultdict[str, float] = defaultdict(float)
    seen: dict[str, set[str]] = {}
    for weight, texts in ((3.0, about), (1.0, tools)):
        for text in texts:
            for word in set(_WORD.findall(text.casefold())):
                for domain in _DOMAINS_OF.get(word, ()):
                    scores[domain] += weight / len(_DOMAINS_OF[word])
                    seen.setdefault(domain, set()).add(word)
    ranked = sorted(scores, key=lambda domain: (-scores[domain], domain))
    if not ranked or len(seen[ranked[0]]) < LEAST:
        return None
    if len(ranked) > 1 and scores[ranked[0]] < LEAD * scores[ranked[1]]:
        return None
    return ranked[0]
