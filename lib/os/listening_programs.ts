/**
 * The programs that listen on sockets of this machine, as `ss` lists them. Pure.
 *
 * @module
 */

/** The arguments of `ss`: TCP and Unix sockets that listen, with their programs. */
export const LISTENING_ARGS: readonly string[] = ["-Hlntxp"];

/** A socket that listens. */
export interface ListeningProgram {
  /** E.g. `0.0.0.0:179`, or the path of a Unix socket. */
  readonly address: string;
  /** Absent for a Unix socket. */
  readonly port?: number;
  /** Absent if `ss` may not see it: the caller is not root, or it is in another container. */
  readonly program?: { readonly name: string; readonly pid: number };
}

/** Reads the output; lines of another form are left out. */
export function* parseListeningPrograms(text: string): Generator<ListeningProgram> {
  for (const line of text.split("\n")) {
    // tcp   LISTEN 0 8   0.0.0.0:179              0.0.0.0:*  users:(("bird",pid=812,fd=7))
    // u_str LISTEN 0 128 /run/bird/bird.ctl 4711        * 0  users:(("bird",pid=812,fd=4))
    const [kind = "", , , , address = ""] = line.trim().split(/\s+/);
    if (!/^(?:tcp|u_str|u_seq)$/.test(kind) || address === "") continue;
    const [, name, pid] = /users:\(\("([^"]{1,64})",pid=(\d+)/.exec(line) ?? [];
    const [, port] = kind === "tcp" ? /:(\d+)$/.exec(address) ?? [] : [];
    if (kind === "tcp" && port === undefined) continue;
    yield {
      address,
      ...(port !== undefined && { port: Number(port) }),
      ...(name !== undefined && { program: { name, pid: Number(pid) } }),
    };
  }
}
