// Runs the extension suite against a fresh server, or against a running one, and fails unless every test passed.
// See scripts/extensions. The test files also run by themselves: EXTENSIONS_URL=URL node --test tests/extensions/*.test.mjs

import { readdirSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { run } from "node:test"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"

import { against } from "../support/against.mjs"

const { values } = parseArgs({
  options: {
    shards: { type: "string", default: "1" },
    url: { type: "string", default: process.env.EXTENSIONS_URL },
    only: { type: "string" },
    "spec-only": { type: "boolean", default: false },
  },
})

const here = dirname(fileURLToPath(import.meta.url))
const files = readdirSync(here)
  .filter((name) => name.endsWith(".test.mjs"))
  .sort()
  .map((name) => join(here, name))

// Each file's run listens for the end of this process.
process.setMaxListeners(0)

/** The lines that say what went wrong: the innermost error, without the frames of the test runner. */
function explain(error) {
  let cause = error
  while (cause?.cause instanceof Error) cause = cause.cause
  const text = String(cause?.stack ?? cause?.cause ?? cause)
  return text
    .split("\n")
    .filter((line) => !line.includes("node:internal"))
    .map((line) => `    ${line}`)
    .join("\n")
}

/** Runs one file in a process of its own, prints what failed, and returns how many tests went which way. */
async function runFile(file) {
  const count = { passed: 0, failed: 0, skipped: 0 }
  const options = { files: [file] }
  if (values.only) options.testNamePatterns = [values.only]
  for await (const { type, data } of run(options)) {
    if (type === "test:stderr") process.stderr.write(data.message)
    if (type === "test:diagnostic" && data.nesting > 0) console.log(`${basename(file)}: ${data.message}`)
    // The file itself is reported like a test; that says something only if it could not be run.
    if (type === "test:fail" && data.todo === undefined) {
      count.failed += 1
      console.log(`\nFAILED ${basename(file)}: ${data.name}\n${explain(data.details.error)}`)
    } else if (type === "test:fail") {
      count.skipped += 1
      console.log(`not done (recommended only): ${data.name}`)
    } else if (type === "test:pass" && data.name !== file) {
      const leftOut = String(data.skip).includes("pattern")
      if (data.skip === undefined) count.passed += 1
      else if (!leftOut) {
        count.skipped += 1
        console.log(`skipped: ${data.name}: ${data.skip}`)
      }
    }
  }
  return count
}

await against(values, async (baseUrl, where) => {
  console.log(`Extension suite against ${where}`)
  process.env.EXTENSIONS_URL = baseUrl
  if (values["spec-only"]) process.env.EXTENSIONS_SPEC_ONLY = "1"
  const total = { passed: 0, failed: 0, skipped: 0 }
  const counts = await Promise.all(files.map(runFile))
  for (const [index, count] of counts.entries()) {
    for (const key of Object.keys(total)) total[key] += count[key]
    if (values.only) continue
    const name = basename(files[index])
    console.log(`${name}: ${say(count)}`)
    if (count.passed + count.failed === 0) throw new Error(`${name} ran no test`)
  }
  console.log(`in all: ${say(total)}`)
  if (total.failed > 0 || total.passed === 0) throw new Error(`extension suite FAILED (${where})`)
})

function say({ passed, failed, skipped }) {
  return `${passed} passed` + (failed ? `, ${failed} failed` : "") + (skipped ? `, ${skipped} skipped` : "")
}
