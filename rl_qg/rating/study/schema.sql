-- The tables of a study. {numbered} is the database's type of a column that numbers its rows. Times are seconds since
-- 1970. Who somebody is stands in identity alone. Tokens are stored as SHA-256.
CREATE TABLE study (id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, plan TEXT NOT NULL,
 sha256 TEXT NOT NULL, secret TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, paused INTEGER NOT NULL);

CREATE TABLE hit (id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, need INTEGER NOT NULL, payload TEXT NOT NULL);

CREATE TABLE rater (id {numbered}, panel TEXT NOT NULL, external_hash TEXT, consent_version TEXT,
 consent_at DOUBLE PRECISION, declined INTEGER NOT NULL DEFAULT 0, practice TEXT, practice_values TEXT,
 language TEXT, created DOUBLE PRECISION, forgotten INTEGER NOT NULL DEFAULT 0, UNIQUE (panel, external_hash));

CREATE TABLE identity (rater BIGINT PRIMARY KEY REFERENCES rater (id), panel TEXT NOT NULL,
 identity TEXT NOT NULL, extra TEXT NOT NULL);

CREATE TABLE invite (token_hash TEXT PRIMARY KEY, rater BIGINT REFERENCES rater (id),
 created DOUBLE PRECISION NOT NULL);

CREATE TABLE session (token_hash TEXT PRIMARY KEY, rater BIGINT NOT NULL REFERENCES rater (id),
 created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL);

CREATE TABLE assignment (id {numbered}, hit TEXT NOT NULL REFERENCES hit (id),
 rater BIGINT NOT NULL REFERENCES rater (id),
 state TEXT NOT NULL CHECK (state IN ('open', 'submitted', 'surplus', 'expired', 'returned')),
 lease_until DOUBLE PRECISION NOT NULL, started DOUBLE PRECISION NOT NULL, submitted DOUBLE PRECISION,
 UNIQUE (hit, rater));

CREATE UNIQUE INDEX one_open ON assignment (rater) WHERE state = 'open';

CREATE INDEX assignment_state ON assignment (state, hit);

CREATE TABLE shown (assignment BIGINT NOT NULL REFERENCES assignment (id), position INTEGER NOT NULL,
 at DOUBLE PRECISION NOT NULL, PRIMARY KEY (assignment, position));

CREATE TABLE rating (assignment BIGINT NOT NULL REFERENCES assignment (id), position INTEGER NOT NULL,
 criterion TEXT NOT NULL, value INTEGER NOT NULL, first_at DOUBLE PRECISION NOT NULL,
 last_at DOUBLE PRECISION NOT NULL, changes INTEGER NOT NULL, PRIMARY KEY (assignment, position, criterion));

CREATE TABLE event (number {numbered}, at DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL,
 rater BIGINT REFERENCES rater (id), assignment BIGINT REFERENCES assignment (id), position INTEGER,
 detail TEXT NOT NULL);

CREATE TABLE code (value TEXT PRIMARY KEY, kind TEXT NOT NULL, assignment BIGINT REFERENCES assignment (id),
 UNIQUE (assignment, kind));

CREATE TABLE feedback (assignment BIGINT PRIMARY KEY REFERENCES assignment (id),
 rater BIGINT NOT NULL REFERENCES rater (id), text TEXT NOT NULL, at DOUBLE PRECISION NOT NULL)
