"""Sound texts of what people write: each has every kind of declaration, and hostile input is made of it."""

from __future__ import annotations

SCHEMA = """
columns:
  - {name: sex, kind: categorical, values: [f, m], labels: {f: female, m: male}}
  - {name: age, kind: integer, bounds: [0, 99], bins: 10, heaping: {every: 5, share: 0.6}, moments: true}
  - {name: partner, kind: integer, bins: [0, 20, 40, 60, 100], not_in_universe: N, nullable: true}
  - {name: wages, kind: real, bins: [0, 100, 1000, 100000], atoms: [0], tail: pareto, moments: true, unseen: clip}
  - {name: rents, kind: real, bins: [0, 100, 1000, 100000], unseen: clip}
  - {name: work, kind: categorical, values: [in, out], reads: job, recode: {farm: out, shop: in}, unseen: other}
  - {name: load, kind: categorical, values: [full, part], nullable: true,
     compare: {left: age, is: ">=", right: 35, then: full, otherwise: part}}
unit_column: person
unit_kind: integer
rules:
  - {name: no partner below 20, when: {age: {max: 19}}, only: {partner: N}}
  - {name: close in age, compare: age - partner < 60}
  - {name: rents are the smaller, compare: "rents <= wages + 5000"}
attached:
  - {name: adult, computed: age >= 20}
  - {name: income, computed: wages + 2 * rents}
  - {name: density, lookup: {from: sex, table: density.csv}}
"""
"""A schema with every kind of declaration but bins that are bought."""

DENSITY = "sex,density\nf,12.5\nm,3\n"

ROWS = """person,sex,age,partner,wages,rents,job
1,f,34,36,1200.5,0,farm
2,m,12,N,0,0,shop
2,m,70,,99999,20.25,shop
"""

PLAN = """
release: r3
dataset: people
source: rows.csv
schema: schema.yaml
method: mst
epsilon: 0.5
delta: 1e-06
strata: {by: sex, pool_below: 5}
protect: [[age, job]]
protect_share: 0.1
quality_share: 0.05
evaluate: quick
shards: 3
csv: true
escape_formulas: true
approval: true
schedule: {calendar: third Tuesday after quarter end, timezone: Europe/Vienna}
deadline_hours: 12
"""

DECLARED = """
values: {sex: {f: female, m: male}, job: [farm, shop, office]}
bounds: {age: [0, 99]}
bins: {age: 5}
nullable: [job]
leave_out: [name]
"""
"""What a notebook declares of a frame."""

CHANNELS = """
channels:
  - {kind: webhook, url: "https://example.org/hook", events: [refusal, failure]}
  - {kind: email, host: localhost, port: 25, tls: none, sender: a@example.org, to: [b@example.org]}
"""

EVENTS = b"""{"kind":"step","release":"r1","step":"fit","seconds":1.5,"runner":{"dag":"d"},\
"at":"2026-01-01T00:00:00+00:00"}
{"kind":"refusal","dataset":"people","release":"r1","text":"no","at":"2026-01-01T00:00:01+00:00"}
{"kind":"cap","dataset":"people","level":0.8,"cap_epsilon":4.0,"limit":20,"at":"2026-01-01T00:00:02+00:00"}
"""

MOMENTS = b'{"age": {"sums": [1.5, -2, 0, 0, 1, 2, 3, 4, 5, 6], "sigma": 2.5}}'
