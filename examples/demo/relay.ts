/**
 * Runs kube-relay as a separate process for the demo.
 *
 * @module
 */

import { findFreePort } from "./endpoints.ts";

/** The running program. */
export interface Relay {
  readonly controlSocket: string;
  /** The log so far. */
  readonly log: readonly string[];
  /** Resolves to the exit code. */
  stop(): Promise<number>;
  /** Resolves when the program ends by itself. */
  readonly ended: Promise<number>;
}

// As a URL: blanks in the path are %20 in its pathname.
const MAIN = new URL("../../main.ts", import.meta.url).href;

/** The product's own permissions, as `compile.sh` builds them in. */
const PERMISSIONS = [
  "--no-prompt",
  "--allow-net",
  "--allow-read",
  "--allow-write",
  "--ignore-env",
  "--allow-sys=hostname,networkInterfaces,osRelease,uid",
  "--allow-run=ip,sysctl",
];

/** Starts kube-relay on a folder of manifests, next to any other instance. */
export function startRelay(
  { manifests, folder }: { readonly manifests: string; readonly folder: string },
): Relay {
  const controlSocket = `${folder}/control.sock`;
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--quiet",
      ...PERMISSIONS,
      MAIN,
      "--mode=userspace",
      `--manifests=${manifests}`,
      `--control-socket=${controlSocket}`,
      `--state-dir=${folder}/state`,
      `--healthz-bind-address=127.0.0.1:${findFreePort(["127.0.0.1"], "tcp")}`,
      `--metrics-bind-address=127.0.0.1:${findFreePort(["127.0.0.1"], "tcp")}`,
    ],
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const log: string[] = [];
  const reading = collectLines(child.stderr, log);
  const ended = Promise.all([child.status, reading]).then(([{ code }]) => code);
  return {
    controlSocket,
    log,
    ended,
    stop() {
      try {
        child.kill("SIGTERM");
      } catch {
        // It has already ended.
      }
      return ended;
    },
  };
}

async function collectLines(stream: ReadableStream<Uint8Array>, lines: string[]): Promise<void> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const pieces = (rest + text).split("\n");
    rest = pieces.pop() ?? "";
    lines.push(...pieces);
  }
  if (rest !== "") lines.push(rest);
}
