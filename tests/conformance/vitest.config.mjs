import { defineConfig } from "vitest/config"

import { EXPECTED_NAME } from "./expected.mjs"

export default defineConfig({
  test: {
    include: ["suite.test.mjs"],
    testNamePattern: EXPECTED_NAME,
    passWithNoTests: false,
    // A test that passes only at the second try is a fault to look at.
    retry: 0,
  },
})
