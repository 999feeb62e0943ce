// Exchanges, introspects and revokes a token, from the metadata of the server alone.
// One JSON object on standard input: issuer, subject, audience, user, secret. One on standard output.
import { readFileSync } from 'node:fs'
import * as oauth from 'oauth4webapi'

const given = JSON.parse(readFileSync(0, 'utf8'))
const issuer = new URL(given.issuer)
const discovered = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2' })
const server = await oauth.processDiscoveryResponse(issuer, discovered)

const job = { client_id: 'job' }
const answer = await oauth.genericTokenEndpointRequest(
  server,
  job,
  oauth.None(),
  'urn:ietf:params:oauth:grant-type:token-exchange',
  new URLSearchParams({
    subject_token: given.subject,
    subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
    audience: given.audience,
  }),
)
const exchanged = await oauth.processGenericTokenEndpointResponse(server, job, answer)

const owner = { client_id: given.user }
const secret = oauth.ClientSecretBasic(given.secret)
async function introspected() {
  const found = await oauth.introspectionRequest(server, owner, secret, exchanged.access_token)
  return oauth.processIntrospectionResponse(server, owner, found)
}

const before = await introspected()
const revoked = await oauth.revocationRequest(server, owner, secret, exchanged.access_token)
await oauth.processRevocationResponse(revoked)
const after = await introspected()
console.log(JSON.stringify({ exchanged, before, after }))
