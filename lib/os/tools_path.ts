/**
 * Whether the folders of `--tools-path` count.
 *
 * Deno looks up the programs that it may start on the PATH, once, before any of our code runs; a
 * program of another folder is refused afterwards, and no child can be given another PATH. So the
 * folders have to be first in the PATH that kube-relay is started with. The self-extracting form puts
 * them there itself; any other form can only say that they are missing.
 *
 * @module
 */

/** Why the folders don't count, with the cure; undefined when they do. */
export function toolsPathProblem(
  folders: readonly string[],
  path: string | undefined,
): { readonly reason: string; readonly cure: string } | undefined {
  const first = (path ?? "").split(":").slice(0, folders.length);
  if (folders.every((folder, index) => first[index] === folder)) return undefined;
  const wanted = folders.join(":");
  return {
    reason: `the PATH does not begin with ${wanted}, and Deno looks programs up only there`,
    cure:
      `start it with PATH=${wanted}:$PATH (systemd: Environment=PATH=${wanted}:/usr/sbin:/usr/bin)`,
  };
}
