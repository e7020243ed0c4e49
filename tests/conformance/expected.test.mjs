// The check must be able to fail: a suite that did not run, ran in part, skipped, or failed is never taken for a pass.

import assert from "node:assert/strict"
import { test } from "node:test"

import { EXPECTED_COUNT, check } from "./expected.mjs"

const reportOf = (assertionResults) => ({ testResults: [{ name: "suite", message: "boom", assertionResults }] })
const tests = (count, status = "passed") =>
  Array.from({ length: count }, (_, i) => ({ fullName: `Reads number ${i}`, status, failureMessages: [] }))
const excluded = [
  { fullName: "Fork - Creation makes a fork", status: "skipped" },
  { fullName: "Reserved subscription APIs answers", status: "pending" },
]

test("a whole run passes", () => {
  assert.deepEqual(check(reportOf([...tests(EXPECTED_COUNT), ...excluded])), { passed: EXPECTED_COUNT, complaints: [] })
})

const cases = {
  "nothing ran": reportOf([]),
  "no file at all": { testResults: [] },
  "one too few": reportOf(tests(EXPECTED_COUNT - 1)),
  "one too many": reportOf(tests(EXPECTED_COUNT + 1)),
  "one failed": reportOf([...tests(EXPECTED_COUNT - 1), ...tests(1, "failed")]),
  "one skipped": reportOf([...tests(EXPECTED_COUNT - 1), ...tests(1, "skipped")]),
  "one pending": reportOf([...tests(EXPECTED_COUNT - 1), ...tests(1, "pending")]),
  "one to do": reportOf([...tests(EXPECTED_COUNT - 1), ...tests(1, "todo")]),
  "an excluded one ran": reportOf([...tests(EXPECTED_COUNT), { ...excluded[0], status: "passed" }]),
}
for (const [name, report] of Object.entries(cases)) {
  test(`${name}: refused`, () => assert.notEqual(check(report).complaints.length, 0))
}
