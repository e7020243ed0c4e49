// The suite itself; run.mjs says against which server.

import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.THALWEG_CONFORMANCE_URL
if (!baseUrl) throw new Error("THALWEG_CONFORMANCE_URL is not set; run scripts/conformance")

runConformanceTests({ baseUrl, subscriptions: true })
