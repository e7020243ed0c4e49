// The official Python client, in its virtual environment; python_client.py has the steps.

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { dirname, join } from "node:path"
import { after, test } from "node:test"
import { fileURLToPath } from "node:url"

import { startServer } from "../support/server.mjs"
import { freshName, prepareSurfaces } from "./surfaces.mjs"

const here = dirname(fileURLToPath(import.meta.url))
const server = await startServer(["--shards", "2"])
const surfaces = await prepareSurfaces(server.url)
after(() => server.stop())

for (const [surface, urlOf] of Object.entries(surfaces)) {
  test(`Python client, ${surface} surface`, async () => {
    const python = join(here, ".venv", "bin", "python")
    const child = spawn(python, [join(here, "python_client.py"), urlOf(freshName("python-"))], { stdio: "pipe" })
    let output = ""
    for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (bytes) => (output += bytes))
    const code = await new Promise((resolve, reject) => {
      child.once("error", reject)
      child.once("close", resolve)
    })
    assert.equal(code, 0, output)
  })
}
