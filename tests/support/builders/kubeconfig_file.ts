import type { PemPair } from "../../conformance/server.ts";

/** The credentials of the user of a kubeconfig. */
export type KubeconfigUser =
  | { readonly token: string }
  | { readonly tokenFile: string }
  /** The PEM text stands in the file itself. */
  | { readonly certificate: PemPair }
  | { readonly certificateFile: string; readonly keyFile: string };

/** The content of a kubeconfig. */
export interface KubeconfigContent {
  readonly server: string;
  /** PEM; stands in the file itself. */
  readonly ca: string;
  readonly user: KubeconfigUser;
  readonly tlsServerName?: string;
}

/** Writes a kubeconfig of one cluster, one user and one context, in one step. JSON is YAML. */
export async function writeKubeconfig(path: string, content: KubeconfigContent): Promise<void> {
  const { server, ca, user, tlsServerName } = content;
  const kubeconfig = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{
      name: "cluster",
      cluster: {
        server,
        "certificate-authority-data": btoa(ca),
        ...(tlsServerName === undefined ? {} : { "tls-server-name": tlsServerName }),
      },
    }],
    users: [{ name: "user", user: userFields(user) }],
    contexts: [{ name: "context", context: { cluster: "cluster", user: "user" } }],
    "current-context": "context",
  };
  await replaceFile(path, JSON.stringify(kubeconfig, undefined, 2));
}

/** Replaces a file in one step, as the kubelet does with tokens and certificates. */
export async function replaceFile(path: string, text: string): Promise<void> {
  await Deno.writeTextFile(`${path}.new`, text, { mode: 0o600 });
  await Deno.rename(`${path}.new`, path);
}

function userFields(user: KubeconfigUser): Record<string, string> {
  if ("token" in user) return { token: user.token };
  if ("tokenFile" in user) return { tokenFile: user.tokenFile };
  if ("certificate" in user) {
    return {
      "client-certificate-data": btoa(user.certificate.cert),
      "client-key-data": btoa(user.certificate.key),
    };
  }
  return { "client-certificate": user.certificateFile, "client-key": user.keyFile };
}
