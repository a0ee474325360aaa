/** The identity of a client of the API machinery, without a file in between. */
import type { KubeAuth, TlsMaterial } from "../../lib/kube/kube_auth.ts";
import type { ConformanceServer } from "./server.ts";

/** Authenticates with the token that is accepted at the moment of each request. */
export function tokenAuth(server: ConformanceServer): KubeAuth {
  const tls: TlsMaterial = { ca: server.ca, insecure: false };
  return {
    server: server.url,
    tls: () => Promise.resolve(tls),
    authorization: () => Promise.resolve(`Bearer ${server.token()}`),
    refresh: () => Promise.resolve(),
    describe: () => ({ server: server.url, source: "kubeconfig", method: "token" }),
  };
}
