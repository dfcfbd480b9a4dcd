-- Compressed token vectors of an item, for late interaction: at most 3.84 kB, out of the row, so that
-- reading the vectors alone does not pass over them. NULL where the model has none.
ALTER TABLE memory.vectors ADD COLUMN IF NOT EXISTS token_codec text;
ALTER TABLE memory.vectors ADD COLUMN IF NOT EXISTS tokens bytea;
ALTER TABLE memory.vectors ALTER COLUMN tokens SET STORAGE EXTERNAL;
