// An OpenID provider on loopback. Reads its settings as JSON from standard input, and prints a line when it listens.
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import Provider from "oidc-provider";

const settings = JSON.parse(readFileSync(0, "utf8"));
const provider = new Provider(settings.url, {
  clients: [{
    client_id: settings.clientId,
    ...(settings.clientSecret
      ? { client_secret: settings.clientSecret }
      : { token_endpoint_auth_method: "none" }),
    redirect_uris: [settings.redirectUri],
    grant_types: ["authorization_code", "refresh_token"],
  }],
  claims: { openid: ["sub"], profile: ["groups"] },
  conformIdTokenClaims: false,
  findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, groups: [`team-${id}`] }) }),
  ttl: { IdToken: settings.seconds, AccessToken: 600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
  cookies: { keys: ["for tests only"] },
});
const tls = { key: readFileSync(settings.key), cert: readFileSync(settings.certificate) };
createServer(tls, provider.callback()).listen(settings.port, "127.0.0.1", () => console.log("listens"));
