// Starts a fresh server for a test: a free port, a temporary data directory, a short long-poll. Resolves when the start
// line has been read, so nothing here ever sleeps. THALWEG_BIN names the binary; THALWEG_TEST_URL a server that runs
// already (of any make: then only the base protocol is tested).

import { spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { join } from "node:path"

/** Milliseconds that a stopping server gets before it is killed. */
const STOP_DEADLINE_MS = 15_000

/**
 * @param {string[]} flags further flags of `thalweg serve`
 * @returns {Promise<{ url: string, startLine: string, stop: () => Promise<void> }>}
 */
export async function startServer(flags = []) {
  const running = process.env.THALWEG_TEST_URL
  if (running) return { url: running, startLine: "", stop: async () => {} }
  const binary = process.env.THALWEG_BIN
  if (!binary) throw new Error("THALWEG_BIN must name the thalweg binary (scripts/test and scripts/conformance set it)")
  // Beside the build, not under /tmp: that is often a file system in memory, which the server would not run on.
  const parent = join(process.env.CARGO_TARGET_DIR ?? join(import.meta.dirname ?? ".", "../../target"), "tmp")
  mkdirSync(parent, { recursive: true })
  const directory = mkdtempSync(join(parent, "node-test-"))
  const removeDirectory = () => rmSync(directory, { recursive: true, force: true })
  const child = spawn(
    binary,
    ["serve", "--listen", "127.0.0.1:0", "--data-dir", join(directory, "data"), ...flags],
    { stdio: ["ignore", "pipe", "pipe"] },
  )
  // A test that dies must not leave a server behind.
  const killAtExit = () => child.kill("SIGKILL")
  process.once("exit", killAtExit)
  let errors = ""
  child.stderr.on("data", (bytes) => (errors += bytes))
  const ended = new Promise((resolve) => {
    child.once("error", (error) => resolve(`could not be started: ${error.message}`))
    child.once("exit", (code, signal) => resolve(`ended with code ${code}, signal ${signal}`))
  })

  const started = new Promise((resolve, reject) => {
    let output = ""
    child.stdout.on("data", (bytes) => {
      output += bytes
      const found = /^.*(http:\/\/[0-9.]+:[0-9]+).*$/m.exec(output)
      if (found && output.indexOf("\n", found.index) >= 0) resolve({ url: found[1], startLine: found[0] })
    })
    ended.then((how) => reject(new Error(`the server ${how} before its start line.\n${output}${errors}`)))
  })
  let start
  try {
    start = await started
  } catch (error) {
    removeDirectory()
    throw error
  }

  return {
    ...start,
    async stop() {
      const alive = child.exitCode === null && child.signalCode === null
      if (alive) child.kill("SIGTERM")
      const timer = setTimeout(() => child.kill("SIGKILL"), STOP_DEADLINE_MS)
      const how = await ended
      clearTimeout(timer)
      process.removeListener("exit", killAtExit)
      removeDirectory()
      if (!alive) throw new Error(`the server had already gone: it ${how}.\n${errors}`)
      if (child.exitCode !== 0) throw new Error(`the server did not stop cleanly: it ${how}.\n${errors}`)
    },
  }
}
