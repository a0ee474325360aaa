/** An etcd for the API machinery: the embedded one of `tests/apiserver`, or an installed one. */
import { eventually } from "../eventually.ts";
import { ServerProcess } from "./server_process.ts";

/** The etcd to start, and its folder. */
export interface EtcdProgram {
  /** The built program of `tests/apiserver`. */
  readonly ours: string;
  /** An etcd on the PATH, to be used instead. */
  readonly foreign?: string;
  /** Folder of the data, which survives a restart. */
  readonly folder: string;
  readonly port: number;
}

/** Starts it; resolves when it serves. */
export async function startEtcd(program: EtcdProgram): Promise<ServerProcess> {
  const { ours, foreign, folder, port } = program;
  const log = `${folder}/etcd.log`;
  if (foreign !== undefined) {
    const args = foreignArgs(program);
    return await ServerProcess.start({
      program: foreign,
      args,
      log,
      ready: () => untilHealthy(port),
    });
  }
  const args = ["etcd", `--data=${folder}`, `--port=${port}`];
  return await ServerProcess.start({ program: ours, args, log });
}

function foreignArgs({ folder, port }: EtcdProgram): string[] {
  const url = `http://127.0.0.1:${port}`;
  const peer = "http://127.0.0.1:0";
  return [
    `--data-dir=${folder}/foreign-etcd`,
    `--listen-client-urls=${url}`,
    `--advertise-client-urls=${url}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=default=${peer}`,
  ];
}

async function untilHealthy(port: number): Promise<void> {
  await eventually("etcd is healthy", async () => {
    const response = await fetch(`http://127.0.0.1:${port}/health`).catch(() => undefined);
    await response?.body?.cancel();
    return response?.ok;
  });
}

/**
 * Returns the version that `etcd --version` prints, such as `3.4.23`; `undefined` if etcd is not
 * installed.
 */
export async function installedEtcdVersion(program: string): Promise<string | undefined> {
  try {
    const { stdout } = await new Deno.Command(program, { args: ["--version"] }).output();
    return /etcd Version: (\S+)/.exec(new TextDecoder().decode(stdout))?.[1];
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
