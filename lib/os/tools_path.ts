/** Returns why the folders have no effect, with the remedy; undefined if they have. */
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
