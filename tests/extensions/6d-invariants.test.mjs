// Section 6.13: the invariants, by random operations against a model, and by reading one stream in every way there is.

import assert from "node:assert/strict"
import { randomInt } from "node:crypto"

import {
  Bucket,
  acknowledgement,
  allRecords,
  clause,
  decision,
  frames,
  from,
  inParallel,
  integer,
  jsonValues,
  randomSource,
  range,
  readOn,
  readValues,
  recordPage,
} from "./harness.mjs"
import { openEvents } from "./http.mjs"

const bucket = await Bucket.create()

/** EXTENSIONS_SEED repeats the random choices of a run; each run names its own. */
const SEED = Number(process.env.EXTENSIONS_SEED ?? randomInt(2 ** 32))
const STEPS = Number(process.env.EXTENSIONS_STEPS ?? 150)

/** A value that is as awkward as it is small, or now and then large. */
function randomValue(random, n) {
  const strange = ["", "a,b", "]", '"', "\n", "\u2028", "😀", null, true, 0, -1.25, [], [[]], [1, [2]], {}]
  if (random.below(3) === 0) return [n, random.pick(strange)]
  return { n, text: "x".repeat(random.below(random.below(20) === 0 ? 20_000 : 200)) }
}

/** What the server must hold: every record with its ordinal, F, producers' acknowledged appends, offsets of boundaries. */
class Model {
  values = []
  first = 0
  /** offset -> ordinal: every boundary that an answer has named. */
  boundaries = new Map()
  producers = new Map()
  match = 0

  commit(values) {
    const start = this.values.length
    this.values.push(...values)
    return [start, this.values.length]
  }

  /** Notes a boundary. One offset has one ordinal, and one ordinal one offset. */
  boundary(offset, ordinal) {
    assert.equal(
      this.boundaries.get(offset) ?? ordinal,
      ordinal,
      `offset ${offset} had ordinal ${this.boundaries.get(offset)}`,
    )
    for (const [other, its] of this.boundaries) {
      if (its === ordinal) assert.equal(other, offset, `record ${ordinal} has two offsets`)
    }
    this.boundaries.set(offset, ordinal)
  }
}

const operations = {
  async one(stream, model, random) {
    const value = { single: randomValue(random, model.values.length) }
    const expected = model.commit([value])
    const ack = await stream.append(value)
    assert.deepEqual([ack.start, ack.next], expected)
    model.boundary(ack.offset, ack.next)
  },

  async array(stream, model, random) {
    const values = range(0, 1 + random.below(9)).map((n) => randomValue(random, n))
    const expected = model.commit(values)
    const ack = await stream.append(values)
    assert.deepEqual([ack.start, ack.next], expected)
    model.boundary(ack.offset, ack.next)
  },

  async batch(stream, model, random) {
    const payloads = range(0, 1 + random.below(6)).map((n) => {
      if (random.below(4) === 0) return { text: random.pick(["{", "[]", "[1,"]), values: undefined }
      const values = range(0, 1 + random.below(3)).map(() => randomValue(random, n))
      return { text: JSON.stringify(values), values }
    })
    const acks = (await stream.batch(frames(payloads.map(({ text }) => text)))).expect(200).json()
    for (const [n, { values }] of payloads.entries()) {
      if (values === undefined) assert.ok(acks[n].status >= 400, JSON.stringify(acks[n]))
      else assert.deepEqual([acks[n].stream_record_start, acks[n].stream_record_next], model.commit(values))
    }
  },

  async producer(stream, model, random) {
    const id = `producer ${random.below(3)}`
    const sent = model.producers.get(id) ?? []
    model.producers.set(id, sent)
    const values = range(0, 1 + random.below(3)).map((n) => randomValue(random, n))
    const headers = { "Producer-Id": id, "Producer-Epoch": "0", "Producer-Seq": String(sent.length) }
    const expected = model.commit(values)
    const ack = await stream.append(values, headers)
    assert.deepEqual([ack.start, ack.next], expected)
    model.boundary(ack.offset, ack.next)
    sent.push({ values, headers, expected })
  },

  async duplicate(stream, model, random) {
    const sent = model.producers.get(`producer ${random.below(3)}`)?.at(-1)
    if (sent === undefined) return
    const ack = acknowledgement((await stream.post(JSON.stringify(sent.values), sent.headers)).expect(204))
    assert.deepEqual([ack.start, ack.next], sent.expected)
  },

  async refused(stream, model, random) {
    const body = random.pick(["", "{", "[]", "[1,2", "[1]]", "nope", '{"a":1}{"b":2}'])
    ;(await stream.post(body)).expect(400)
  },

  async conditional(stream, model, random) {
    const tail = model.values.length
    const match = random.below(2) === 0 ? tail : random.below(tail + 3)
    const value = randomValue(random, tail)
    const answer = await stream.post(JSON.stringify([value]), { "Stream-Record-Match": String(match) })
    if (match === tail) {
      assert.deepEqual([integer(answer.ok().header("Stream-Record-Start")), tail + 1], model.commit([value]))
    } else {
      assert.equal(answer.expect(412).header("Stream-Record-Next"), String(tail))
    }
  },

  async attributes(stream, model, random) {
    ;(await stream.putAttributes({ title: String(random.below(100)) })).expect(204)
  },

  async snapshot(stream, model, random) {
    model.snapshot ??= 0
    const record =
      Math.max(model.snapshot, model.first) +
      random.below(model.values.length - Math.max(model.snapshot, model.first) + 1)
    const answer = await stream.publishAtRecord(record, `folded ${record}`)
    if (record > model.snapshot || model.published === undefined) {
      answer.expect(204)
      model.snapshot = record
      model.published = `folded ${record}`
    }
  },

  async retention(stream, model, random) {
    if (model.published === undefined || model.snapshot < model.first) return
    const record = model.first + random.below(model.snapshot - model.first + 1)
    ;(await stream.retainFromRecord(record)).ok()
    model.first = record
  },

  async bootstrap(stream, model) {
    const { snapshot, updates, answer, next } = await stream.bootstrap()
    const start = model.published === undefined ? model.first : model.snapshot
    assert.equal(snapshot.text, model.published ?? "")
    assert.equal(answer.header("Stream-Snapshot-Offset") === "-1", model.published === undefined)
    assert.deepEqual(
      updates.map((part) => JSON.parse(part.text)),
      model.values.slice(start),
    )
    model.boundary(next, model.values.length)
  },

  async head(stream, model) {
    const head = (await stream.head()).expect(200)
    assert.equal(head.header("Stream-Record-First"), String(model.first))
    assert.equal(head.header("Stream-Record-Next"), String(model.values.length))
    model.boundary(head.require("Stream-Next-Offset"), model.values.length)
  },

  async byRecord(stream, model, random) {
    const record = random.below(model.values.length + 2)
    const max = 1 + random.below(12)
    const query = `?record=${record}&max_records=${max}`
    if (record < model.first) {
      ;(await stream.get(query)).expect(410)
    } else if (record > model.values.length) {
      ;(await stream.get(query)).expect(400)
    } else {
      const page = await stream.readRecords(query)
      assert.deepEqual([page.first, page.start], [model.first, record])
      assert.ok(page.values.length <= max)
      assert.ok(page.values.length > 0 || record === model.values.length, "a read makes progress")
      assert.deepEqual(page.values, model.values.slice(record, page.next))
      model.boundary(page.offset, page.next)
    }
  },

  async byTail(stream, model, random) {
    const count = random.below(30)
    const page = await stream.readRecords(`?tail_records=${count}&record_view=envelope`)
    const start = Math.max(model.first, model.values.length - count)
    assert.equal(page.start, start)
    assert.deepEqual(
      page.values,
      model.values.slice(start, page.next).map((value, n) => ({ record: start + n, value })),
    )
  },

  async byOffset(stream, model, random) {
    if (model.boundaries.size === 0) return
    const [offset, record] = random.pick([...model.boundaries])
    if (record < model.first) (await stream.get(from(offset))).expect(410)
    else assert.deepEqual(await readValues(stream, offset), model.values.slice(record))
  },
}

/** Random operations until the model and the server disagree, or `steps` are done. */
async function walk(t, names, seed, steps) {
  t.diagnostic(`EXTENSIONS_SEED=${seed} EXTENSIONS_STEPS=${steps}`)
  const random = randomSource(seed)
  const stream = await bucket.records()
  const model = new Model()
  for (const step of range(0, steps)) {
    const name = random.pick(names)
    try {
      await operations[name](stream, model, random)
    } catch (error) {
      throw new Error(`step ${step}, ${name}, EXTENSIONS_SEED=${seed} EXTENSIONS_STEPS=${steps}: ${error.message}`, {
        cause: error,
      })
    }
  }
  assert.deepEqual((await allRecords(stream, model.first)).values, model.values.slice(model.first))
}

const APPENDS = ["one", "array", "batch", "producer", "duplicate", "refused", "conditional"]
const READS = ["head", "byRecord", "byTail", "byOffset"]

clause("6.13", "random appends and reads against a model", (t) => walk(t, [...APPENDS, ...READS], SEED, STEPS))

clause("6.13", "random operations against a model, with attributes, snapshots, retention and bootstrap", (t) =>
  walk(t, [...APPENDS, ...READS, "attributes", "snapshot", "retention", "bootstrap"], SEED + 1, STEPS),
)

clause("6.13", "every record is there once, in order, however it is read", async (t) => {
  const stream = await bucket.records()
  const values = range(0, 1000).map((n) => ({ n, text: "t".repeat((n * 31) % 700) }))
  for (const start of range(0, 50)) {
    const part = values.slice(start * 20, start * 20 + 20)
    if (start % 3 === 0) await stream.append(part)
    else if (start % 3 === 1) (await stream.batch(frames(part.map((value) => JSON.stringify(value))))).expect(200)
    else for (const value of part) await stream.append(value)
  }
  assert.deepEqual(await readValues(stream), values, "by offset")
  assert.deepEqual((await allRecords(stream)).values, values, "by record")
  assert.deepEqual((await allRecords(stream, 0, "&max_records=37")).values, values, "by pages of records")
  const enveloped = (await allRecords(stream, 0, "&record_view=envelope")).values
  assert.deepEqual(
    enveloped,
    values.map((value, record) => ({ record, value })),
    "by envelopes",
  )
  assert.deepEqual(
    (await stream.bootstrap()).updates.map((part) => JSON.parse(part.text)),
    values,
    "by bootstrap",
  )
  const events = await openEvents(t, `${stream.path}?record=0&live=sse`)
  const seen = []
  while (seen.length < values.length) seen.push(...jsonValues((await events.nextPair()).data))
  assert.deepEqual(seen, values, "by SSE")
  const polled = []
  for (let record = 0; record < values.length;) {
    const page = await stream.readRecords(`?record=${record}&live=long-poll`)
    polled.push(...page.values)
    record = page.next
  }
  assert.deepEqual(polled, values, "by long-poll")
})

clause("6.13", "O(r) is the offset of record r: reads by O(r) and by r are the same, for every r", async () => {
  const stream = await bucket.records()
  for (const start of range(0, 12))
    await stream.append(range(0, 10).map((n) => ({ n: start * 10 + n, t: "o".repeat(n * 9) })))
  const offsets = await inParallel(
    range(1, 121),
    async (r) => (await stream.readRecords(`?record=${r - 1}&max_records=1`)).offset,
  )
  assert.equal(new Set(offsets).size, 120)
  assert.deepEqual(offsets, [...offsets].sort(), "offsets sort as text, in the order of ordinals")
  await inParallel(offsets, async (offset, n) => {
    const [byOffset, byRecord] = [await readValues(stream, offset), (await allRecords(stream, n + 1)).values]
    assert.deepEqual(byOffset, byRecord, `record ${n + 1}`)
    assert.deepEqual(
      byRecord.map((value) => value.n),
      range(n + 1, 120),
    )
  })
})

clause("6.13", "partial offset reads expose the same sequence as record reads, at any max_bytes", async () => {
  const stream = await bucket.records()
  const values = range(0, 200).map((n) => ({ n, text: "p".repeat((n * 17) % 120) }))
  for (const start of range(0, 20)) await stream.append(values.slice(start * 10, start * 10 + 10))
  for (const max of [100, 333, 1000, 4096]) {
    assert.deepEqual(await readValues(stream, "-1", `&max_bytes=${max}`), values, `max_bytes=${max}`)
  }
})

decision(
  13,
  "6.13",
  "every page of a partial offset read is whole records, whose next offset is the record's",
  async () => {
    const stream = await bucket.records()
    const values = range(0, 100).map((n) => ({ n, text: "p".repeat((n * 17) % 120) }))
    await stream.append(values)
    const { bodies, offsets } = await readOn(stream, "-1", "&max_bytes=500")
    let record = 0
    for (const [n, body] of bodies.entries()) {
      const page = JSON.parse(body)
      assert.deepEqual(page, values.slice(record, record + page.length))
      record += page.length
      assert.equal((await stream.readRecords(`?record=${record - 1}&max_records=1`)).offset, offsets[n])
    }
    assert.equal(record, 100)
  },
)

clause(
  "6.13",
  "concurrent writers of every kind: all records are there once, where their acknowledgements say",
  async () => {
    const stream = await bucket.records()
    const acked = new Map()
    const note = (start, next, values) => {
      assert.equal(next - start, values.length)
      values.forEach((value, n) => {
        assert.ok(!acked.has(start + n), `ordinal ${start + n} was given twice`)
        acked.set(start + n, value)
      })
    }
    const writers = {
      singles: async (id) => {
        for (const n of range(0, 15)) {
          const { start, next } = await stream.append({ id, n })
          note(start, next, [{ id, n }])
        }
      },
      arrays: async (id) => {
        for (const n of range(0, 10)) {
          const values = range(0, 1 + (n % 7)).map((k) => ({ id, n, k }))
          const { start, next } = await stream.append(values)
          note(start, next, values)
        }
      },
      batches: async (id) => {
        for (const n of range(0, 5)) {
          const parts = range(0, 6).map((k) => [
            { id, n, k },
            { id, n, k, second: true },
          ])
          const acks = (await stream.batch(frames(parts.map((part) => JSON.stringify(part))))).expect(200).json()
          acks.forEach((ack, k) => note(ack.stream_record_start, ack.stream_record_next, parts[k]))
        }
      },
      producers: async (id) => {
        for (const n of range(0, 10)) {
          const headers = { "Producer-Id": id, "Producer-Epoch": "0", "Producer-Seq": String(n) }
          const [one, two] = await Promise.all([stream.append({ id, n }, headers), stream.append({ id, n }, headers)])
          assert.deepEqual([one.start, one.next], [two.start, two.next])
          note(one.start, one.next, [{ id, n }])
        }
      },
    }
    await Promise.all(Object.entries(writers).flatMap(([kind, write]) => range(0, 3).map((n) => write(`${kind}-${n}`))))
    const { values, last } = await allRecords(stream)
    assert.equal(values.length, acked.size)
    assert.equal(last.next, acked.size)
    for (const [n, value] of values.entries()) assert.deepEqual(value, acked.get(n), `record ${n}`)
  },
)

clause(
  "6.13",
  "a writer, a folder that snapshots and trims, and readers that come and go: nobody loses a record",
  async (t) => {
    const stream = await bucket.records()
    const count = 600
    const writer = (async () => {
      for (let n = 0; n < count; n += 4) await stream.append(range(n, n + 4))
      await stream.close()
    })()

    // The state of the application is how many records it has folded: record n holds n.
    const fold = (state, values) => {
      for (const value of values) assert.equal(value, state++, "a record is missing, or there twice")
      return state
    }
    const start = async () => {
      const { snapshot, updates, next, answer } = await stream.bootstrap()
      const state = fold(
        Number(snapshot.text),
        updates.map((part) => JSON.parse(part.text)),
      )
      return { state, next, at: answer.header("Stream-Snapshot-Offset") }
    }

    const folder = (async () => {
      let digest
      for (let state = 0; state < count;) {
        const reached = await start()
        state = reached.state
        const match = digest === undefined ? {} : { "Stream-Snapshot-Match": digest }
        digest = (await stream.publish(reached.next, String(state), match))
          .expect(204)
          .require("Stream-Snapshot-Digest")
        ;(await stream.retain(reached.next)).ok()
      }
    })()

    /** Follows by long-polls of few records, and starts again by bootstrap whenever retention has overtaken it. */
    const poller = async (query) => {
      for (let { state } = await start(); state < count;) {
        const answer = (await stream.get(query(state))).expect(200, 204, 410)
        if (answer.status === 410) state = (await start()).state
        else state = fold(state, recordPage(answer).values)
      }
    }
    const watcher = async () => {
      for (let reached = await start(); reached.state < count;) {
        const events = await openEvents(t, `${stream.path}${from(reached.next, "&live=sse")}`)
        if (events.status === 410) {
          reached = await start()
          continue
        }
        assert.equal(events.status, 200, `${events}`)
        for (let event = await events.next(); event !== null; event = await events.next()) {
          if (event.event === "data") reached.state = fold(reached.state, jsonValues(event.data))
          else reached.next = JSON.parse(event.data).streamNextOffset
        }
      }
    }
    await Promise.all([
      writer,
      folder,
      poller((state) => `?record=${state}&max_records=3&live=long-poll`),
      poller((state) => `?record=${state}&max_records=5`),
      watcher(),
      watcher(),
    ])
    const head = (await stream.head()).expect(200)
    assert.equal(head.header("Stream-Record-First"), String(count))
    assert.equal(head.header("Stream-Record-Next"), String(count))
  },
)

clause("6.13", "base-protocol clients observe no semantic change: JSON in, JSON out, by offsets alone", async () => {
  const stream = await bucket.records()
  ;(await stream.post('{"a":1}')).ok()
  const { offset } = await stream.append([{ b: 2 }, [3]])
  ;(await stream.post("4")).ok()
  const all = (await stream.get()).expect(200)
  assert.equal(all.mediaType, "application/json")
  assert.deepEqual(jsonValues(all.text), [{ a: 1 }, { b: 2 }, [3], 4])
  assert.deepEqual(jsonValues((await stream.get(from(offset))).expect(200).text), [4])
  assert.deepEqual(jsonValues((await stream.get(from("now"))).expect(200).text), [])
  assert.equal((await stream.get(from(await stream.tail()))).expect(200).header("Stream-Up-To-Date"), "true")
})
