// The official TypeScript client: create, append, read back, follow, close, delete; on both surfaces.

import assert from "node:assert/strict"
import { after, describe, test } from "node:test"

import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

import { startServer } from "../support/server.mjs"
import { freshName, prepareSurfaces } from "./surfaces.mjs"

const server = await startServer(["--shards", "2"])
const surfaces = await prepareSurfaces(server.url)
after(() => server.stop())

/** Follows a stream until `count` items have come, calling `caughtUp` once when the reader has reached the tail. */
async function followJson(options, count, caughtUp) {
  const items = []
  const response = await stream({ ...options, json: true })
  let called = false
  await new Promise((resolve, reject) => {
    const unsubscribe = response.subscribeJson(async (batch) => {
      items.push(...batch.items)
      if (batch.upToDate && !called) {
        called = true
        caughtUp().catch(reject)
      }
      if (items.length >= count) {
        unsubscribe()
        resolve()
      }
    })
    response.closed.catch(reject)
  })
  return items
}

for (const [surface, urlOf] of Object.entries(surfaces)) {
  describe(`TypeScript client, ${surface} surface`, () => {
    test("text: create, append, head, read back, close, delete", async () => {
      const url = urlOf(freshName("text"))
      const handle = await DurableStream.create({ url, contentType: "text/plain" })
      await handle.append("first ")
      await handle.append("second ")
      await handle.appendStream(
        (async function* () {
          yield "thi"
          yield "rd"
        })(),
      )
      const head = await handle.head()
      assert.equal(head.exists, true)
      assert.equal(head.contentType, "text/plain")
      const read = await stream({ url, live: false })
      assert.equal(await read.text(), "first second third")
      assert.equal(read.offset, head.offset)
      const rest = await stream({ url, offset: head.offset, live: false })
      assert.equal(await rest.text(), "")
      const closed = await handle.close({ body: "!" })
      assert.notEqual(closed.finalOffset, head.offset)
      const all = await stream({ url, live: false })
      assert.equal(await all.text(), "first second third!")
      await assert.rejects(handle.append("late"))
      await handle.delete()
      assert.equal((await fetch(url)).status, 404)
    })

    test("bytes: every byte value comes back", async () => {
      const url = urlOf(freshName("bytes"))
      const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
      const bytes = Uint8Array.from({ length: 4096 }, (_, i) => (i * 7) % 256)
      await handle.append(bytes)
      const read = await stream({ url, live: false })
      assert.deepEqual(await read.body(), bytes)
    })

    for (const live of ["long-poll", "sse"]) {
      test(`JSON: follow by ${live}`, async () => {
        const url = urlOf(freshName("follow"))
        const handle = await DurableStream.create({ url, contentType: "application/json" })
        await handle.append(JSON.stringify({ n: 0 }))
        const items = await followJson({ url, live }, 6, async () => {
          for (let n = 1; n <= 5; n++) await handle.append(JSON.stringify({ n }))
        })
        assert.deepEqual(items, [0, 1, 2, 3, 4, 5].map((n) => ({ n })))
      })

      test(`JSON: following by ${live} ends when the stream is closed`, async () => {
        const url = urlOf(freshName("closing"))
        const handle = await DurableStream.create({ url, contentType: "application/json" })
        await handle.append(JSON.stringify("one"))
        const response = await stream({ url, live, json: true })
        const items = []
        for await (const item of response.jsonStream()) {
          items.push(item)
          if (item === "one") await handle.close({ body: JSON.stringify("last") })
        }
        assert.deepEqual(items, ["one", "last"])
      })
    }

    test("bytes: follow by SSE in base64", async () => {
      const url = urlOf(freshName("binary"))
      const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
      const response = await stream({ url, live: "sse", offset: "-1" })
      const first = Uint8Array.from([0, 255, 10, 13, 128])
      const second = Uint8Array.from([1, 2, 3])
      await handle.append(first)
      await handle.append(second)
      await handle.close()
      const got = []
      for await (const chunk of response.bodyStream()) got.push(...chunk)
      assert.deepEqual(got, [...first, ...second])
    })

    test("idempotent producer: every item once and in order", async () => {
      const url = urlOf(freshName("producer"))
      const handle = await DurableStream.create({ url, contentType: "application/json" })
      const failures = []
      const producer = new IdempotentProducer(handle, "producer", { onError: (error) => failures.push(error) })
      const count = 1000
      for (let n = 0; n < count; n++) producer.append(JSON.stringify({ n }))
      await producer.flush()
      await producer.close()
      assert.deepEqual(failures, [])
      const read = await stream({ url, live: false, json: true })
      assert.deepEqual(await read.json(), Array.from({ length: count }, (_, n) => ({ n })))
    })
  })
}
