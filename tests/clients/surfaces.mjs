// The two addresses under which a server offers streams, made ready for use.

import assert from "node:assert/strict"

const BUCKET = "clients"

/**
 * @param {string} baseUrl
 * @returns {Promise<Record<string, (name: string) => string>>} for each surface, a stream's URL by its name
 */
export async function prepareSurfaces(baseUrl) {
  const surfaces = { flat: (name) => `${baseUrl}/v1/stream/clients/${name}` }
  // A foreign server knows the base protocol only.
  if (process.env.THALWEG_TEST_URL) return surfaces
  const created = await fetch(`${baseUrl}/${BUCKET}`, { method: "PUT" })
  assert.equal(created.status, 201, await created.text())
  return { ...surfaces, bucketed: (name) => `${baseUrl}/${BUCKET}/${name}` }
}

let names = 0
/** A name that no other stream of this run has, also when the server outlives the run. */
export const freshName = (what) => `${what}-${process.pid}-${names++}`
