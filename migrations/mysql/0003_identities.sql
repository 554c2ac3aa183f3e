-- What gives requests their identity, per namespace, as an operator last accepted it. A process configured
-- otherwise refuses the namespace: under its rules every old key would be new.
CREATE TABLE identities (
    namespace   VARBINARY(100) NOT NULL PRIMARY KEY,
    -- Canonical text of key sources, scope, auth mode and claims. Compared byte for byte.
    description LONGBLOB NOT NULL,
    accepted_at BIGINT NOT NULL,
    -- Why a change was accepted; NULL for the first description, which nobody had to accept.
    reason      LONGBLOB
) ENGINE = InnoDB;
