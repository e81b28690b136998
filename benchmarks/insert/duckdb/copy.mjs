// JSON lines to one Parquet file with DuckDB: node copy.mjs MODULES GLOB OUT THREADS
// prints the seconds that the statement took, its start and the process's excluded.
import { createRequire } from 'node:module'
const [modules, glob, out, threads] = process.argv.slice(2)
const { DuckDBInstance } = createRequire(modules + '/')('@duckdb/node-api')
const db = await (await DuckDBInstance.create(':memory:')).connect()
await db.run(`SET threads = ${Number(threads)}`)
const columns = `{kind: 'VARCHAR', step: 'BIGINT', start: 'BIGINT', dur: 'BIGINT', exposed: 'BIGINT', ring: 'UINTEGER', seq: 'UBIGINT',
	op: 'VARCHAR', "group": 'VARCHAR', count: 'BIGINT', dtype: 'VARCHAR', bytes: 'BIGINT'}`
const began = process.hrtime.bigint()
await db.run(`COPY (SELECT * FROM read_json('${glob}', format = 'newline_delimited', columns = ${columns}) WHERE kind IS NOT NULL)
	TO '${out}' (FORMAT parquet, COMPRESSION zstd)`)
console.log(Number(process.hrtime.bigint() - began) / 1e9)
