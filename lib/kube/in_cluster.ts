import { formatHostPort } from "../net/port.ts";
import type { KubeIdentity } from "./kube_identity.ts";

/** The folder in which the kubelet puts the account's files. */
const SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The places where {@linkcode inClusterIdentity} looks. */
interface InClusterOptions {
  readonly env: (name: string) => string | undefined;
  /** URL of the server, overriding the one in the environment. */
  readonly master: string | undefined;
  /** @default {"/var/run/secrets/kubernetes.io/serviceaccount"} */
  readonly serviceAccountFolder?: string | undefined;
}

/**
 * Returns the identity of a pod's service account; `undefined` outside of a pod or without an
 * account.
 */
export async function inClusterIdentity(
  { env, master, serviceAccountFolder: folder = SERVICE_ACCOUNT_FOLDER }: InClusterOptions,
): Promise<KubeIdentity | undefined> {
  const host = env("KUBERNETES_SERVICE_HOST");
  const port = env("KUBERNETES_SERVICE_PORT");
  const server = master ??
    (host && port ? `https://${formatHostPort(host, Number(port))}` : undefined);
  const tokenFile = `${folder}/token`;
  if (server === undefined || !await exists(tokenFile)) return undefined;
  return {
    server,
    source: "in-cluster account",
    ca: { field: "the service account's ca.crt", file: `${folder}/ca.crt` },
    insecure: false,
    tokenFile: { field: "the service account's token", file: tokenFile },
  };
}

async function exists(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch {
    return false;
  }
}
