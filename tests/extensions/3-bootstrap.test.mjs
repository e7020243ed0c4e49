// Section 3: bootstrap.

import assert from "node:assert/strict"

import {
  BYTES,
  Bucket,
  JSON_TYPE,
  TEXT,
  boundaryOf,
  clause,
  decision,
  frames,
  parseMultipart,
  from,
  randomSource,
  range,
  readBytes,
  readValues,
  should,
} from "./harness.mjs"
import { openEvents, receiveSlowly } from "./http.mjs"

const bucket = await Bucket.create()

/** A stream of a type with these messages, and the offset behind each. */
async function messages(parts, type = TEXT) {
  const stream = await bucket.make(type)
  const offsets = []
  for (const part of parts) offsets.push((await stream.append(part)).offset)
  return { stream, offsets }
}

const texts = (updates) => updates.map((part) => part.text)

// --- 3.1

for (const live of ["sse", "long-poll", "true"]) {
  should("3.1", `live=${live} on /bootstrap SHOULD be rejected with 400`, async () => {
    const { stream } = await messages(["one"])
    ;(await stream.request("GET", `/bootstrap?live=${live}`)).expect(400)
  })
}

clause(
  "3.1",
  "/bootstrap defines no query parameters: those of reads, and unknown ones, do not change what it returns",
  async () => {
    const { stream, offsets } = await messages(["one", "two"])
    const plain = (await stream.bootstrap()).answer
    for (const query of [
      from(offsets[0]),
      "?record=1",
      "?max_records=1",
      "?max_bytes=1",
      "?tail_records=1",
      "?other=x",
    ]) {
      const answer = await stream.request("GET", `/bootstrap${query}`)
      // A server may refuse what makes no sense here; it may not answer something else.
      if (answer.status >= 400 && answer.status < 500) continue
      assert.deepEqual(
        parseMultipart(answer.expect(200)).map((part) => part.text),
        parseMultipart(plain).map((part) => part.text),
      )
      assert.equal(answer.header("Stream-Next-Offset"), offsets[1])
    }
  },
)

// --- 3.2

clause("3.2", "Content-Type is multipart/mixed with a boundary", async () => {
  const { stream } = await messages(["one"])
  const { answer } = await stream.bootstrap()
  assert.equal(answer.mediaType, "multipart/mixed")
  assert.ok(boundaryOf(answer).length > 0)
})

clause(
  "3.2",
  "without a snapshot: an empty first part of application/octet-stream, Stream-Snapshot-Offset MUST be -1",
  async () => {
    const { stream, offsets } = await messages(["one", "two"])
    const { answer, snapshot, updates } = await stream.bootstrap()
    assert.equal(answer.require("Stream-Snapshot-Offset"), "-1")
    assert.equal(snapshot.body.length, 0)
    assert.equal(snapshot.contentType, BYTES)
    assert.deepEqual(texts(updates), ["one", "two"])
    assert.equal(answer.require("Stream-Next-Offset"), offsets[1])
  },
)

clause("3.2", "an empty stream: the empty first part alone", async () => {
  for (const type of [TEXT, JSON_TYPE]) {
    const stream = await bucket.make(type)
    const { answer, snapshot, updates, next } = await stream.bootstrap()
    assert.equal(answer.require("Stream-Snapshot-Offset"), "-1")
    assert.equal(snapshot.body.length, 0)
    assert.equal(snapshot.contentType, BYTES)
    assert.equal(updates.length, 0)
    assert.equal(next, await stream.tail())
  }
})

clause("3.2", "with a snapshot: the first part MUST be its raw bytes, with its content type", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  const blob = Buffer.from("\r\n--x\r\nContent-Type: text/html\r\n\r\n\0\xff--\r\n", "latin1")
  ;(await stream.publish(offsets[0], blob, { "Content-Type": "application/x-folded; v=1" })).expect(204)
  const { answer, snapshot, updates, next } = await stream.bootstrap()
  assert.deepEqual(snapshot.body, blob)
  assert.equal(snapshot.contentType, "application/x-folded; v=1")
  assert.equal(answer.require("Stream-Snapshot-Offset"), offsets[0])
  assert.deepEqual(texts(updates), ["two", "three"])
  assert.equal(next, offsets[2])
})

clause("3.2", "an empty snapshot is a snapshot: its content type and offset, not -1", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  ;(await stream.publish(offsets[0], "", { "Content-Type": "text/x-empty" })).expect(204)
  const { answer, snapshot, updates } = await stream.bootstrap()
  assert.equal(answer.require("Stream-Snapshot-Offset"), offsets[0])
  assert.equal(snapshot.contentType, "text/x-empty")
  assert.equal(snapshot.body.length, 0)
  assert.deepEqual(texts(updates), ["two"])
})

clause("3.2", "a snapshot at the tail: no update parts", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  ;(await stream.publish(offsets[1], "folded")).expect(204)
  const { snapshot, updates, next } = await stream.bootstrap()
  assert.equal(snapshot.text, "folded")
  assert.equal(updates.length, 0)
  assert.equal(next, offsets[1])
})

clause("3.2", "the latest snapshot counts", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  ;(await stream.publish(offsets[0], "old")).expect(204)
  ;(await stream.publish(offsets[1], "new")).expect(204)
  const { answer, snapshot, updates } = await stream.bootstrap()
  assert.equal(answer.require("Stream-Snapshot-Offset"), offsets[1])
  assert.equal(snapshot.text, "new")
  assert.deepEqual(texts(updates), ["three"])
})

clause("3.2", "each update part MUST be exactly one message, in order, with the stream's content type", async () => {
  for (const type of [TEXT, BYTES, "text/markdown; charset=utf-8"]) {
    const parts = ["a", "bb", "a message with spaces ", "\n", "e".repeat(1000)]
    const { stream } = await messages(parts, type)
    const { updates } = await stream.bootstrap()
    assert.deepEqual(texts(updates), parts)
    for (const part of updates) assert.equal(part.contentType, type)
  }
})

clause("3.2", "initial content of a create is one message", async () => {
  const stream = await bucket.make(TEXT, { body: "initial" })
  await stream.append("appended")
  assert.deepEqual(texts((await stream.bootstrap()).updates), ["initial", "appended"])
})

clause("3.2", "a closing append is a message; closing alone is none", async () => {
  const { stream } = await messages(["one"])
  await stream.append("last", { "Stream-Closed": "true" })
  assert.deepEqual(texts((await stream.bootstrap()).updates), ["one", "last"])
  const other = await messages(["one"])
  await other.stream.close()
  assert.deepEqual(texts((await other.stream.bootstrap()).updates), ["one"])
})

clause("3.2", "the frames of a batch are messages of their own: they MUST NOT be coalesced", async () => {
  const { stream } = await messages(["one"])
  ;(await stream.batch(frames(["two", "three", "four"]))).expect(200)
  assert.deepEqual(texts((await stream.bootstrap()).updates), ["one", "two", "three", "four"])
})

clause("6.10", "each update part of a JSON stream MUST be one logical message: arrays are flattened", async () => {
  const stream = await bucket.make(JSON_TYPE, { body: '[{"n": 0}, {"n": 1}]' })
  await stream.append({ n: 2 })
  await stream.append([{ n: 3 }, [4, 5], "six", null, []])
  ;(await stream.batch(frames(["[7, 8]", '"nine"']))).expect(200)
  const { updates } = await stream.bootstrap()
  const expected = [{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }, [4, 5], "six", null, [], 7, 8, "nine"]
  assert.deepEqual(
    updates.map((part) => JSON.parse(part.text)),
    expected,
  )
  for (const part of updates) assert.equal(part.contentType, JSON_TYPE)
})

clause("3.2", "a JSON snapshot in the middle of an array: the parts begin at its record", async () => {
  const stream = await bucket.records(range(0, 10))
  ;(await stream.publishAtRecord(4, "folded")).expect(204)
  const { updates } = await stream.bootstrap()
  assert.deepEqual(
    updates.map((part) => JSON.parse(part.text)),
    range(4, 10),
  )
})

clause("3.2", "binary payloads MUST NOT be reframed: every byte value, line breaks at the ends, dashes", async () => {
  const payloads = [
    Buffer.from(range(0, 256)),
    Buffer.from("\r\n"),
    Buffer.from("\r\n\r\n"),
    Buffer.from("--"),
    Buffer.from("\n--\r"),
    Buffer.from("ends in a break\r\n"),
    Buffer.from("\r\nbegins with one"),
    Buffer.from("\r"),
    Buffer.from("Content-Type: text/html\r\n\r\nno header"),
    Buffer.from([0]),
    Buffer.from([0, 0, 0, 3, 97, 98, 99]),
  ]
  const { stream } = await messages(payloads, BYTES)
  const { updates } = await stream.bootstrap()
  assert.deepEqual(
    updates.map((part) => part.body),
    payloads,
  )
})

clause("3.2", "payloads that look like the boundary do not end a part", async () => {
  const { stream } = await messages(["one"], BYTES)
  const payloads = [Buffer.from("one")]
  // The boundary of an earlier answer, in every form in which it could be taken for a delimiter.
  for (const _ of range(0, 3)) {
    const boundary = boundaryOf((await stream.bootstrap()).answer)
    for (const text of [
      `\r\n--${boundary}\r\n`,
      `--${boundary}--\r\n`,
      `\r\n--${boundary}--`,
      boundary,
      `--${boundary}`,
    ]) {
      payloads.push(Buffer.from(text))
      await stream.append(text)
    }
  }
  const { updates } = await stream.bootstrap()
  assert.deepEqual(
    updates.map((part) => part.text),
    payloads.map(String),
  )
})

clause("3.2", "a snapshot that looks like the boundary does not end its part", async () => {
  const { stream, offsets } = await messages(["one", "two"], BYTES)
  const boundary = boundaryOf((await stream.bootstrap()).answer)
  const blob = `\r\n--${boundary}--\r\n--${boundary}\r\nContent-Type: text/plain\r\n\r\nnot a part`
  ;(await stream.publish(offsets[0], blob)).expect(204)
  const { snapshot, updates } = await stream.bootstrap()
  assert.equal(snapshot.text, blob)
  assert.deepEqual(texts(updates), ["two"])
})

clause(
  "3.2",
  "Stream-Next-Offset is the next offset after all returned data, Stream-Up-To-Date is true at the tail",
  async () => {
    const { stream, offsets } = await messages(["one", "two"])
    const { answer, next } = await stream.bootstrap()
    assert.equal(answer.require("Stream-Up-To-Date"), "true")
    assert.equal(next, offsets[1])
    await stream.append("three")
    assert.equal(String(await readBytes(stream, next)), "three")
  },
)

clause("3.2", "a bootstrap of many messages is complete: 20,000 records, some megabytes", async () => {
  const stream = await bucket.records()
  const value = (n) => ({ n, text: "x".repeat((n * 37) % 400) })
  for (const start of range(0, 20)) await stream.append(range(start * 1000, (start + 1) * 1000).map(value))
  ;(await stream.publishAtRecord(1234, "folded")).expect(204)
  const { updates, next, answer } = await stream.bootstrap()
  assert.equal(updates.length, 20_000 - 1234)
  for (const [n, part] of updates.entries()) assert.deepEqual(JSON.parse(part.text), value(n + 1234))
  assert.equal(answer.header("Stream-Up-To-Date"), "true")
  assert.equal(next, await stream.tail())
})

clause("3.2", "large messages stay whole: some of more than a megabyte", async () => {
  const random = randomSource(7)
  const payloads = [3_000_000, 1, 1_048_576, 1_048_577, 65_536, 2].map((length) =>
    Buffer.alloc(length, Buffer.from(range(0, 1021).map(() => random.below(256)))),
  )
  const { stream } = await messages(payloads, BYTES)
  const { updates } = await stream.bootstrap()
  assert.deepEqual(
    updates.map((part) => part.body.length),
    payloads.map((payload) => payload.length),
  )
  for (const [n, part] of updates.entries()) assert.ok(part.body.equals(payloads[n]), `message ${n}`)
})

clause(
  "3.2",
  "many small messages of a byte stream keep their boundaries: 1,500 of 1 to 40 bytes, by batches",
  async () => {
    const random = randomSource(11)
    const stream = await bucket.make(BYTES)
    const payloads = range(0, 1500).map((n) => String.fromCharCode(97 + (n % 26)).repeat(1 + random.below(40)))
    for (const start of [0, 500, 1000]) (await stream.batch(frames(payloads.slice(start, start + 500)))).expect(200)
    assert.deepEqual(texts((await stream.bootstrap()).updates), payloads)
  },
)

clause(
  "3.2",
  "a bootstrap is consistent while appends go on: its parts, then the reads from its offset, lose and repeat nothing",
  async () => {
    const stream = await bucket.records()
    let appending = true
    let appended = 0
    const writer = (async () => {
      while (appending) {
        await stream.append(range(appended, appended + 3))
        appended += 3
      }
    })()
    try {
      for (const _ of range(0, 20)) {
        const { updates, next } = await stream.bootstrap()
        const got = updates.map((part) => JSON.parse(part.text))
        const rest = await readValues(stream, next)
        assert.deepEqual([...got, ...rest], range(0, got.length + rest.length))
        assert.equal(got.length % 3, 0, "an atomic append is there as a whole, or not at all")
      }
    } finally {
      appending = false
      await writer
    }
    assert.equal((await stream.bootstrap()).updates.length, appended)
  },
)

for (const [what, change] of [
  ["trimmed to its tail", async (stream) => (await stream.retain(await publishAtTail(stream))).ok()],
  ["deleted", async (stream) => (await stream.delete()).expect(204)],
]) {
  clause("3.2", `a bootstrap whose stream is ${what} meanwhile is as it was, or a broken answer`, async () => {
    const stream = await bucket.make(BYTES)
    const payloads = range(0, 24).map((n) => Buffer.alloc(500_000 + n, 65 + n))
    for (const payload of payloads) await stream.append(payload)
    const reader = await receiveSlowly("GET", `${stream.path}/bootstrap`)
    assert.equal(reader.status, 200)
    await change(stream)
    const answer = await reader.finish().catch(() => undefined)
    if (answer === undefined) return
    const [, ...updates] = parseMultipart(answer)
    assert.equal(updates.length, payloads.length)
    for (const [n, part] of updates.entries()) assert.ok(part.body.equals(payloads[n]), `message ${n}`)
  })
}

/** Publishes a snapshot at the tail. Returns its offset. */
async function publishAtTail(stream) {
  const tail = await stream.tail()
  ;(await stream.publish(tail, "folded")).expect(204)
  return tail
}

clause("3.2", "the part that a retained offset cuts off is gone: parts begin at the snapshot", async () => {
  const { stream, offsets } = await messages(["one", "two", "three", "four"])
  ;(await stream.publish(offsets[1], "folded")).expect(204)
  ;(await stream.retain(offsets[1])).ok()
  const { snapshot, updates } = await stream.bootstrap()
  assert.deepEqual([snapshot.text, ...texts(updates)], ["folded", "three", "four"])
})

clause("3.2", "404 if the stream does not exist", async () => {
  ;(await bucket.stream(TEXT).request("GET", "/bootstrap")).expect(404)
  const { stream } = await messages(["one"])
  ;(await stream.delete()).expect(204)
  ;(await stream.request("GET", "/bootstrap")).expect(404)
})

clause("3.2", "a closed stream can be bootstrapped", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  ;(await stream.publish(offsets[0], "folded")).expect(204)
  await stream.close()
  const { snapshot, updates, next } = await stream.bootstrap()
  assert.deepEqual([snapshot.text, ...texts(updates)], ["folded", "two"])
  assert.equal(next, offsets[1])
})

should("6.10", "bootstrap responses SHOULD include Stream-Record-First and Stream-Record-Next", async () => {
  const stream = await bucket.records(range(0, 5))
  const { answer } = await stream.bootstrap()
  assert.equal(answer.header("Stream-Record-First"), "0", `${answer}`)
  assert.equal(answer.header("Stream-Record-Next"), "5", `${answer}`)
  await stream.trimBefore(2)
  const trimmed = (await stream.bootstrap()).answer
  assert.equal(trimmed.header("Stream-Record-First"), "2", `${trimmed}`)
  assert.equal(trimmed.header("Stream-Record-Next"), "5", `${trimmed}`)
})

decision(21, "3.2", "the boundary occurs in no part, and a JSON part has no separator byte", async () => {
  const stream = await bucket.make(JSON_TYPE, { body: '[ {"b": 1.0, "a": "\\u00e9"} , 2]' })
  const { answer, updates } = await stream.bootstrap()
  assert.deepEqual(texts(updates), ['{"b":1.0,"a":"\\u00e9"}', "2"])
  const boundary = boundaryOf(answer)
  // One delimiter before each of the three parts, and one at the end.
  assert.equal(answer.text.split(boundary).length - 1, 4)
})

decision(32, "3.2", "Stream-Up-To-Date is true or absent", async () => {
  const { stream } = await messages(["one"])
  assert.equal((await stream.bootstrap()).answer.header("Stream-Up-To-Date"), "true")
})

decision(
  24,
  "3.2",
  "bootstrap, 304, record-aware reads, batches and an attached live reader renew a TTL",
  async (t) => {
    const windowMs = 2000
    const make = async () => {
      const stream = await bucket.make(JSON_TYPE, { body: "[1]", headers: { "Stream-TTL": String(windowMs / 1000) } })
      return { stream, used: Date.now(), gapMs: 0 }
    }
    const etagOf = async ({ stream }) => (await stream.get()).require("ETag")
    const [unused, notModified, followed, ...others] = await Promise.all(range(0, 6).map(make))
    const etag = await etagOf(notModified)
    const uses = [
      [notModified, (stream) => stream.get("", { "If-None-Match": etag })],
      [others[0], (stream) => stream.request("GET", "/bootstrap")],
      [others[1], (stream) => stream.get("?record=1")],
      [others[2], (stream) => stream.batch(frames(["2"]))],
    ]
    const events = await openEvents(t, `${followed.stream.path}?record=now&live=sse`)
    // The unused stream is the clock: when it has expired, the others have outlived their first window.
    while ((await unused.stream.head()).expect(200, 404).status === 200) {
      for (const [made, use] of uses) {
        const answer = await use(made.stream)
        made.gapMs = Math.max(made.gapMs, Date.now() - made.used)
        made.used = Date.now()
        if (made.gapMs > windowMs) return t.skip("this machine is too busy to use a stream once in its window")
        answer.expect(200, 304)
      }
    }
    for (const [{ stream }] of uses) (await stream.head()).expect(200)
    ;(await followed.stream.head()).expect(200)
    await followed.stream.append(2)
    assert.deepEqual(JSON.parse((await events.nextPair()).data), [2])
  },
)

// --- 3.3

clause("3.3", "the client goes on by SSE from Stream-Next-Offset", async (t) => {
  const { stream } = await messages(["one"])
  const { next } = await stream.bootstrap()
  const events = await openEvents(t, `${stream.path}${from(next, "&live=sse")}`)
  assert.equal(events.status, 200, `${events}`)
  await stream.append("two")
  assert.equal((await events.nextPair()).data, "two")
})

clause("3.3", "the client goes on by long-poll from Stream-Next-Offset", async () => {
  const { stream } = await messages(["one"])
  const { next } = await stream.bootstrap()
  const poll = stream.get(from(next, "&live=long-poll"))
  await stream.append("two")
  assert.equal((await poll).expect(200).text, "two")
})

// --- 3.4

clause("3.4", "an ordinary read MUST NOT return snapshot bytes: catch-up, long-poll, SSE", async (t) => {
  const { stream, offsets } = await messages(["one", "two"])
  ;(await stream.publish(offsets[0], "SNAPSHOT")).expect(204)
  assert.equal((await stream.get()).expect(200).text, "onetwo")
  assert.equal((await stream.get(from(offsets[0]))).expect(200).text, "two")
  assert.equal((await stream.get(from("-1", "&live=long-poll"))).expect(200).text, "onetwo")
  const events = await openEvents(t, `${stream.path}?offset=-1&live=sse`)
  assert.equal((await events.nextPair()).data, "onetwo")
})
