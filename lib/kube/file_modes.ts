/**
 * Warns of files with secrets that everybody can read.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { KubeIdentity } from "./kube_identity.ts";

const OTHERS_READ = 0o004;
const OTHERS_WRITE = 0o002;

/** Looks at the kubeconfig, the key and the token; a pod's own files are the kubelet's business. */
export async function warnOfOpenFiles(identity: KubeIdentity, logger: Logger): Promise<void> {
  if (identity.source === "in-cluster account") return;
  const { file, key, tokenFile } = identity;
  for (const path of [file, key && "file" in key ? key.file : undefined, tokenFile?.file]) {
    if (path === undefined) continue;
    const mode = (await Deno.stat(path)).mode ?? 0;
    const verbs = [
      ...(mode & OTHERS_READ ? ["read"] : []),
      ...(mode & OTHERS_WRITE ? ["write"] : []),
    ];
    if (verbs.length === 0) continue;
    logger.warn("File with credentials is open to every user of this machine", {
      file: path,
      othersMay: verbs.join(" and "),
      cure: `chmod 600 ${path}`,
    });
  }
}
