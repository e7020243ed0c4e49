// What must have run, and the check of a report against it.

/** Full names of the tests that the server must pass: forks and reserved subscriptions come later. */
export const EXPECTED_NAME = /^(?!.*(?:Fork|Reserved subscription))/
/** Number of such tests in version 0.3.6 of the suite. */
export const EXPECTED_COUNT = 250

/**
 * Compares a report of vitest's JSON reporter with what is expected.
 * @param {object} report
 * @returns {{ passed: number, complaints: string[] }}
 */
export function check(report) {
  const complaints = []
  let passed = 0
  let expected = 0
  for (const file of report.testResults) {
    // A file that fails to load has no tests; its message is the only trace.
    if (file.assertionResults.length === 0) complaints.push(`${file.name} ran nothing: ${file.message}`)
    for (const test of file.assertionResults) {
      if (!EXPECTED_NAME.test(test.fullName)) {
        if (test.status === "passed" || test.status === "failed") {
          complaints.push(`ran although it is excluded: ${test.fullName}`)
        }
        continue
      }
      expected += 1
      if (test.status === "passed") passed += 1
      else complaints.push([`${test.status}: ${test.fullName}`, ...(test.failureMessages ?? [])].join("\n  "))
    }
  }
  if (expected !== EXPECTED_COUNT) {
    complaints.push(`the suite has ${expected} tests to pass, not ${EXPECTED_COUNT}: it did not run as a whole`)
  }
  if (passed !== EXPECTED_COUNT) complaints.push(`${passed} of ${EXPECTED_COUNT} passed`)
  return { passed, complaints }
}
