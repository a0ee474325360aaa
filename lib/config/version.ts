/** The version of kube-relay, as in `deno.json`. */
export const VERSION = "0.1.0";

/** The release of kube-proxy whose flags, files, ports and metrics kube-relay follows. */
export const KUBE_PROXY_RELEASE = "1.36";
