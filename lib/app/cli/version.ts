/** Version of this program; `deno.json` says the same, which a test checks. */
export const VERSION = "0.1.0";

/** The release of kube-proxy whose flags, files, ports and metrics are followed. */
export const KUBE_PROXY_RELEASE = "1.36";

/** What `--version` prints. */
export function versionText(): string {
  return `kube-relay v${VERSION} (kube-proxy ${KUBE_PROXY_RELEASE} compatible)`;
}
