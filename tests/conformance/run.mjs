// Runs the conformance suite against a fresh server, or against a running one with --url, and fails unless exactly the
// expected tests ran and passed. See scripts/conformance.

import { spawn } from "node:child_process"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"

import { against } from "../support/against.mjs"
import { EXPECTED_COUNT, check } from "./expected.mjs"

const here = dirname(fileURLToPath(import.meta.url))
const { values } = parseArgs({
  options: { shards: { type: "string", default: "1" }, url: { type: "string" }, only: { type: "string" } },
})

/** Runs vitest to its end and returns its parsed report. */
async function runSuite(baseUrl, reportFile) {
  const vitest = join(here, "node_modules", "vitest", "vitest.mjs")
  const args = [vitest, "run", "--root", here, "--reporter=json", `--outputFile=${reportFile}`]
  if (values.only) args.push("--testNamePattern", values.only, "--reporter=verbose")
  const child = spawn(process.execPath, args, {
    stdio: "inherit",
    env: { ...process.env, THALWEG_CONFORMANCE_URL: baseUrl },
  })
  const code = await new Promise((resolve, reject) => {
    child.once("error", reject)
    child.once("exit", (exitCode, signal) => resolve(exitCode ?? signal))
  })
  if (!existsSync(reportFile)) throw new Error(`the suite did not run: vitest ended with ${code} and left no report`)
  return { code, report: JSON.parse(readFileSync(reportFile, "utf8")) }
}

const directory = mkdtempSync(join(tmpdir(), "thalweg-conformance-"))
await against(values, async (baseUrl, where) => {
  console.log(`Conformance suite against ${where}`)
  const { code, report } = await runSuite(baseUrl, join(directory, "report.json"))
  if (values.only) {
    process.exitCode = code
    return
  }
  const { passed, complaints } = check(report)
  if (complaints.length === 0 && code !== 0) complaints.push(`vitest ended with ${code}`)
  for (const complaint of complaints) console.error(complaint)
  console.log(`${passed} passed, ${EXPECTED_COUNT - passed} failed`)
  if (complaints.length > 0) throw new Error(`conformance FAILED (${where})`)
})
rmSync(directory, { recursive: true, force: true })
