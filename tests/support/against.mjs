// What the runners of suites share: a server to run against, and an exit code that says how it went.

import { startServer } from "./server.mjs"

/** Several tests wait for a long-poll to time out, and some suites wait only 5 s for that. */
const LONG_POLL_TIMEOUT_MS = 2_000

/**
 * Calls `run(baseUrl, where)` with the server at `url`, or with a fresh one of `shards` shards that is stopped afterwards.
 * What `run` throws, or a server that died or does not stop cleanly, is printed and makes the exit code 1.
 *
 * @param {{ url?: string, shards: string }} options
 * @param {(baseUrl: string, where: string) => Promise<void>} run
 */
export async function against({ url, shards }, run) {
  let server
  try {
    const flags = ["--shards", shards, "--long-poll-timeout-ms", String(LONG_POLL_TIMEOUT_MS)]
    server = url ? undefined : await startServer(flags)
    await run(server ? server.url : url, server ? `a fresh server, shards: ${shards}` : url)
  } catch (error) {
    console.error(String(error.stack ?? error))
    process.exitCode = 1
  } finally {
    try {
      await server?.stop()
    } catch (error) {
      console.error(String(error))
      process.exitCode = 1
    }
  }
}
