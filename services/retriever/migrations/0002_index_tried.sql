-- How many vectors a space had when its HNSW index failed the recall check; 0: none has failed. It is
-- not built again before there are twice as many.
ALTER TABLE retriever.spaces ADD COLUMN IF NOT EXISTS index_tried bigint NOT NULL DEFAULT 0;
