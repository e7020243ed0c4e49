// What every file of the suite uses: tests named after clauses, buckets and streams of its own, and readers of bodies.
//
// A server is named by EXTENSIONS_URL. With EXTENSIONS_SPEC_ONLY set, the tests of this server's own decisions are left
// out, and what a document only recommends (SHOULD) is reported without making the run fail.

import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { after, test } from "node:test"

import { BASE_PATH, send } from "./http.mjs"

export const JSON_TYPE = "application/json"
export const TEXT = "text/plain"
export const BYTES = "application/octet-stream"
export const RECORDS_TOKEN = "json-record-coordinates-v1"

const SPEC_ONLY = Boolean(process.env.EXTENSIONS_SPEC_ONLY)
/** Milliseconds that one test may take, so that a server that hangs fails a test and not the run. */
const TEST_TIMEOUT_MS = 600_000

// --- tests

/** A test of what `section` demands. */
export function clause(section, text, run) {
  test(`${section}: ${text}`, { timeout: TEST_TIMEOUT_MS }, run)
}

/** A test of what `section` recommends. */
export function should(section, text, run) {
  test(`${section}: ${text}`, { timeout: TEST_TIMEOUT_MS, todo: SPEC_ONLY ? "recommended only" : false }, run)
}

/** A test of what this server's decision asks for where `section` is silent. */
export function decision(number, section, text, run) {
  if (!SPEC_ONLY) test(`${section}, decision ${number}: ${text}`, { timeout: TEST_TIMEOUT_MS }, run)
}

// --- buckets and streams

let counter = 0
/** A name that nothing else has. */
export const unique = (label) => `${label}-${randomBytes(6).toString("hex")}${counter++}`

/** A path segment: everything that is not plainly allowed is percent-encoded. */
export const segment = (text) => encodeURIComponent(text)

/** A bucket of the test file's own. When the file is done, what it made in there is deleted, and nothing else. */
export class Bucket {
  #streams = new Set()

  constructor(id) {
    this.id = id
    this.path = `/${id}`
  }

  static async create(label = "ext") {
    const bucket = new Bucket(unique(label))
    ;(await send("PUT", bucket.path)).expect(201)
    after(() => bucket.#cleanUp())
    return bucket
  }

  /** A stream that does not exist yet; without an id, with a name of its own. */
  stream(contentType, id = unique("s")) {
    const stream = new Stream(this, id, contentType)
    this.#streams.add(stream.path)
    return stream
  }

  /** A new stream. */
  async make(contentType, { body, headers, id } = {}) {
    const stream = this.stream(contentType, id)
    ;(await stream.put({ body, headers })).expect(201)
    return stream
  }

  /** A new JSON stream with these records. */
  async records(values = []) {
    const stream = await this.make(JSON_TYPE)
    if (values.length > 0) await stream.append(values)
    return stream
  }

  list(query = "") {
    return send("GET", `${this.path}/streams${query}`)
  }

  async #cleanUp() {
    await inParallel([...this.#streams], (path) => send("DELETE", path))
    await send("DELETE", this.path)
  }
}

/** A stream and its endpoints. */
export class Stream {
  constructor(bucket, id, contentType) {
    Object.assign(this, { bucket, id, contentType, path: `${bucket.path}/${segment(id)}` })
  }

  request(method, suffix = "", options = {}) {
    return send(method, this.path + suffix, options)
  }

  put({ body, headers = {} } = {}) {
    return this.request("PUT", "", { body, headers: { "Content-Type": this.contentType, ...headers } })
  }

  post(body, headers = {}) {
    return this.request("POST", "", { body, headers: { "Content-Type": this.contentType, ...headers } })
  }

  get(query = "", headers = {}) {
    return this.request("GET", query, { headers })
  }

  head() {
    return this.request("HEAD")
  }

  delete() {
    return this.request("DELETE")
  }

  /** Appends, must succeed. On a JSON stream the body is a value or an array of values; otherwise text or bytes. */
  async append(body, headers = {}) {
    const json = this.contentType === JSON_TYPE
    const answer = (await this.post(json ? JSON.stringify(body) : body, headers)).ok()
    return acknowledgement(answer)
  }

  async close() {
    return (await this.request("POST", "", { headers: { "Stream-Closed": "true" } })).ok()
  }

  /** The offset of the tail. */
  async tail() {
    return (await this.head()).expect(200).require("Stream-Next-Offset")
  }

  batch(frames, headers = {}) {
    return this.request("POST", "/append-batch", {
      body: frames,
      headers: { "Content-Type": this.contentType, ...headers },
    })
  }

  publish(offset, body, headers = {}) {
    return this.request("PUT", `/snapshot/${segment(offset)}`, { body, headers })
  }

  publishAtRecord(record, body, headers = {}) {
    return this.request("PUT", `/snapshot?record=${record}`, { body, headers })
  }

  snapshot(offset) {
    return this.request("GET", `/snapshot/${segment(offset)}`)
  }

  retain(offset) {
    return this.request("PUT", `/retention/${segment(offset)}`)
  }

  retainFromRecord(record) {
    return this.request("PUT", `/retention?record=${record}`)
  }

  /** Publishes a snapshot at the record and retains from there. */
  async trimBefore(record, snapshot = `folded up to ${record}`) {
    ;(await this.publishAtRecord(record, snapshot)).expect(204)
    ;(await this.retainFromRecord(record)).ok()
  }

  /** The bootstrap, parsed: its answer, the parts, and the offsets. */
  async bootstrap() {
    const answer = (await this.request("GET", "/bootstrap")).expect(200)
    const [first, ...updates] = parseMultipart(answer)
    return { answer, snapshot: first, updates, next: answer.require("Stream-Next-Offset") }
  }

  getAttributes() {
    return this.request("GET", "/attrs")
  }

  putAttributes(attributes, headers = { "Content-Type": JSON_TYPE }) {
    const body = typeof attributes === "string" ? attributes : JSON.stringify(attributes)
    return this.request("PUT", "/attrs", { body, headers })
  }

  /**
   * A fork of this stream at the offset, which is created by this call. Undefined, and the test `t` is skipped, if the
   * server has no forks (501).
   */
  async fork(t, offset) {
    const fork = this.bucket.stream(this.contentType)
    const answer = await fork.put({ headers: this.forkHeaders(offset) })
    if (answer.status === 501) return void t.skip("this server has no forks")
    answer.expect(201)
    return fork
  }

  forkHeaders(offset) {
    return { "Stream-Forked-From": BASE_PATH + this.path, "Stream-Fork-Offset": offset }
  }

  /** A record-aware read that must succeed with complete lines; `query` has the record parameters. */
  async readRecords(query) {
    return recordPage((await this.get(query)).expect(200))
  }
}

/** What an append or a create says about records and offsets. */
export function acknowledgement(answer) {
  return {
    answer,
    offset: answer.require("Stream-Next-Offset"),
    start: integer(answer.header("Stream-Record-Start")),
    next: integer(answer.header("Stream-Record-Next")),
  }
}

/** A decimal integer without leading zeros, as a number; anything else fails. An absent header stays undefined. */
export function integer(text) {
  if (text === undefined) return undefined
  assert.match(text, /^(0|[1-9][0-9]*)$/, "an ordinal is a decimal integer")
  return Number(text)
}

/** `?offset=...&more`, encoded. */
export const from = (offset, more = "") => `?offset=${segment(offset)}${more}`

/** `run` for every item, some at a time. Results in the order of the items. */
export async function inParallel(items, run, width = 32) {
  const results = new Array(items.length)
  let at = 0
  const worker = async () => {
    while (at < items.length) {
      const index = at++
      results[index] = await run(items[index], index)
    }
  }
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker))
  return results
}

/** The integers from `start` to `end`, exclusive. */
export const range = (start, end) => Array.from({ length: end - start }, (_, i) => start + i)

// --- offsets: opaque, but a test of what is no boundary needs a token that no answer contained

/** A token past the tail, made by counting up the digits that `token` ends in. Undefined if it does not end in any. */
export function beyond(token) {
  const digits = /\d+$/.exec(token)?.[0]
  if (digits === undefined) return undefined
  const moved = String(BigInt(digits) + 1000n).padStart(digits.length, "0")
  return token.slice(0, -digits.length) + moved
}

/** A token between two of the same stream. Undefined if there is none, or tokens are not counted in digits. */
export function between(lower, upper) {
  const [low, high] = [lower, upper].map((token) => /\d+$/.exec(token)?.[0])
  if (low === undefined || high === undefined || low.length !== high.length) return undefined
  if (lower.slice(0, -low.length) !== upper.slice(0, -high.length) || BigInt(high) - BigInt(low) < 2n) return undefined
  return lower.slice(0, -low.length) + String(BigInt(low) + 1n).padStart(low.length, "0")
}

// --- bodies

/** The values of an ordinary JSON answer: an array, or lines. */
export function jsonValues(text) {
  if (text === "") return []
  try {
    const value = JSON.parse(text)
    if (Array.isArray(value)) return value
  } catch {
    // Not one JSON text: lines.
  }
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line))
}

/** The values of an NDJSON body: every line is one complete JSON text and ends in a line feed. */
export function ndjson(answer) {
  if (answer.body.length === 0) return []
  assert.ok(answer.text.endsWith("\n"), `the last line does not end: ${answer}`)
  return answer.text
    .slice(0, -1)
    .split("\n")
    .map((line) => {
      try {
        return JSON.parse(line)
      } catch {
        return assert.fail(`not a complete JSON text: ${line}\n${answer}`)
      }
    })
}

/** The coordinates and values of a record-aware answer; checks what 6.7 demands of every one. */
export function recordPage(answer) {
  const page = {
    answer,
    first: integer(answer.require("Stream-Record-First")),
    start: integer(answer.require("Stream-Record-Start")),
    next: integer(answer.require("Stream-Record-Next")),
    offset: answer.require("Stream-Next-Offset"),
    values: answer.status === 204 ? [] : ndjson(answer),
  }
  assert.ok(
    answer
      .header("Stream-Extensions")
      ?.split(",")
      .some((token) => token.trim() === RECORDS_TOKEN),
    `${answer}`,
  )
  assert.equal(page.next - page.start, page.values.length, `records ${page.start} to ${page.next}: ${answer}`)
  assert.ok(page.first <= page.start, `${answer}`)
  return page
}

/** Follows a record-aware read to the tail. */
export async function allRecords(stream, start = 0, more = "") {
  const pages = []
  for (let record = start; ;) {
    const page = await stream.readRecords(`?record=${record}${more}`)
    pages.push(page)
    if (page.answer.header("Stream-Up-To-Date") === "true") break
    assert.ok(page.next > record, `a page before the tail makes no progress: ${page.answer}`)
    record = page.next
  }
  return { pages, values: pages.flatMap((page) => page.values), last: pages.at(-1) }
}

/** Follows an ordinary read to the tail: the bodies, and the last Stream-Next-Offset. */
export async function readOn(stream, offset = "-1", more = "") {
  const bodies = []
  const offsets = []
  for (let at = offset; ;) {
    const answer = (await stream.get(from(at, more))).expect(200)
    const next = answer.require("Stream-Next-Offset")
    bodies.push(answer.body)
    offsets.push(next)
    if (answer.header("Stream-Up-To-Date") === "true") return { bodies, offsets, next }
    assert.notEqual(next, at, `a page before the tail makes no progress: ${answer}`)
    at = next
  }
}

/** All bytes from `offset` to the tail. */
export async function readBytes(stream, offset = "-1") {
  return Buffer.concat((await readOn(stream, offset)).bodies)
}

/** All values of a JSON stream from `offset` to the tail, whether pages are arrays, or lines that pages may cut. */
export async function readValues(stream, offset = "-1", more = "") {
  const texts = (await readOn(stream, offset, more)).bodies.map(String)
  try {
    return texts.flatMap((text) => jsonValues(text))
  } catch {
    return jsonValues(texts.join(""))
  }
}

// --- multipart/mixed (RFC 2046)

/** The boundary of a multipart answer. */
export function boundaryOf(answer) {
  assert.equal(answer.mediaType, "multipart/mixed", `${answer}`)
  const found = /;\s*boundary=(?:"([^"]+)"|([^\s;"]+))/i.exec(answer.header("content-type"))
  assert.ok(found, `no boundary: ${answer}`)
  const boundary = found[1] ?? found[2]
  assert.match(boundary, /^[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]$/, "RFC 2046, 5.1.1")
  return boundary
}

/** The parts: headers (lower case) and body. Every delimiter line must be well formed, and the last one must end it. */
export function parseMultipart(answer) {
  const delimiter = Buffer.from(`\r\n--${boundaryOf(answer)}`)
  // So that a delimiter at the very start has its line break, too.
  const text = Buffer.concat([Buffer.from("\r\n"), answer.body])
  const parts = []
  let at = text.indexOf(delimiter)
  assert.ok(at >= 0, `no delimiter: ${answer}`)
  for (;;) {
    at += delimiter.length
    if (text.subarray(at, at + 2).toString() === "--") return parts
    const line = text.indexOf("\r\n", at)
    assert.ok(line >= 0 && /^[ \t]*$/.test(text.subarray(at, line).toString()), `a delimiter line goes on: ${answer}`)
    const end = text.indexOf(delimiter, line)
    assert.ok(end >= 0, `the closing delimiter is missing: ${answer}`)
    parts.push(parsePart(text.subarray(line, end)))
    at = end
  }
}

/** A part, from the line break after its delimiter on. */
function parsePart(text) {
  const headEnd = text.indexOf("\r\n\r\n")
  assert.ok(headEnd >= 0, `no empty line behind a part's headers: ${text.subarray(0, 200)}`)
  const headers = {}
  for (const line of text.subarray(0, headEnd).toString().split("\r\n").filter(Boolean)) {
    const colon = line.indexOf(":")
    assert.ok(colon > 0, `not a header of a part: ${line}`)
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim()
  }
  return {
    headers,
    contentType: headers["content-type"],
    body: text.subarray(headEnd + 4),
    get text() {
      return String(this.body)
    },
  }
}

// --- append batch

/** The body of an append batch: each payload behind its length. */
export function frames(payloads) {
  return Buffer.concat(
    payloads.flatMap((payload) => {
      const bytes = Buffer.from(payload)
      const length = Buffer.alloc(4)
      length.writeUInt32BE(bytes.length)
      return [length, bytes]
    }),
  )
}

/** A generator of numbers below 2^32 with a seed, so that a failed random test can be repeated. */
export function randomSource(seed) {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return (mixed ^ (mixed >>> 14)) >>> 0
  }
  return { below: (limit) => next() % limit, pick: (items) => items[next() % items.length] }
}
