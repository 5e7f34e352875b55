"""What the ledger's columns and states mean, in the words of the reference page."""

from __future__ import annotations

FIELDS = {
    "id": "number of the record, from 1, without gaps",
    "previous_hash": "hash of the record before; the first one names 64 zeros",
    "hash": "SHA-256 of all other columns as one line of JSON with sorted names and no spaces; an empty `form` is "
    "left out",
    "state": "what the record says, see below",
    "dataset": "the data set whose account it is",
    "account": "the account as it was then: unit, neighbours, delta, cap, rows of one unit, largest number of records, "
    "limit of refusals, accounts with rows of the same people",
    "ledger_records.key": "fingerprint of the question: data set, snapshot, release, step, stratum, purpose, "
    "mechanism, columns and the fingerprint in `form`; empty where nothing is asked",
    "attempt": "how often this question was begun; a second attempt means that one was given up",
    "snapshot": "keyed fingerprint of the source, or of a file that is bound: changed data are other questions; "
    "shown and exported as a number within its release",
    "stratum": "part of a declared partition of the records, or `null`",
    "release": "name of the release",
    "step": "step of the pipeline",
    "purpose": "what the answer is for, in words",
    "mechanism": "mechanism, sensitivity, scale and number of answers: from these the price is computed again",
    "asked": "the sets of columns that were asked about",
    "mu2": "the price in μ², an exact fraction; prices add up",
    "reason": "why a cap or a limit was changed, a large delta accepted, a release ended or an attempt given up",
    "runner": "DAG, run, task, attempt and person",
    "library": "version of the software that wrote the record",
    "entropy": "where the noise came from",
    "cap_mu2": "the account's cap at that time, in μ²",
    "remaining_mu2": "what was left after the record, in μ²",
    "answer_digest": "SHA-256 of the stored noisy answer; empty where there is none",
    "at": "time, UTC",
    "form": "digest of all that determines the question (references, weights, ranges, merged codes, matrices), and "
    "what the numbers of the answer are: kind, columns and shape of each block; `null` where nothing was asked, empty "
    "in records from before there was this column",
    "ledger_answers.key": "the question that was answered",
    "digest": "SHA-256 of the integers; the record of the same question carries it too",
    "vector": "the noisy answer: 64-bit integers, compressed",
}
"""Columns of both tables; `table.column` goes before `column`."""

STATES = {
    "account": "an account was declared",
    "cap": "the cap of an account was changed",
    "limit": "the limit of refusals of an account was changed",
    "shared": "an account was declared to hold rows of the same people as others: what one spends counts against all",
    "held": "a release set its whole budget aside, before it read anything",
    "closed": "a release ended, and what it had set aside and not used is free again",
    "reserved": "a question was let through and charged; nothing has been read for it",
    "measuring": "data may have been read; from here on the charge stays",
    "measured": "the noisy answer is stored; asking again returns it at no cost",
    "forfeited": "an attempt died between measuring and measured: its charge stays, its answer is lost",
    "refunded": "a reservation that was never used was given back",
    "noted": "a step that cost nothing, a decision, or the end of a step",
    "bound": "a source file belongs to this account from now on; no other may read it, unless both are composed",
    "refused": "a refusal that depends on confidential records was given; it is counted before its text is shown",
}
