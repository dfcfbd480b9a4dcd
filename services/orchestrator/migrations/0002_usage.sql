-- Tokens of the answering model by tenant and UTC day: what a daily budget is compared with.

CREATE TABLE IF NOT EXISTS orchestrator.usage (
    tenant_id         text NOT NULL,
    day               date NOT NULL,
    runs              bigint NOT NULL DEFAULT 0,
    prompt_tokens     bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, day)
);

SELECT auth.protect('orchestrator.usage');
GRANT SELECT, INSERT, UPDATE, DELETE ON orchestrator.usage TO nianlun_orchestrator;
