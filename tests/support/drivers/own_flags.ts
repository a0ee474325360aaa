import {
  loadConfiguration,
  type LoadDependencies,
  type LoadedConfiguration,
} from "../../../lib/config/load.ts";
import { type ParsedFlags, parseFlags } from "../../../lib/config/parse_flags.ts";
import { unusedPort } from "./unused_port.ts";

/** Flags that give a kube-relay of a test a socket, a state and ports of its own. */
export function ownFlags(
  folder: string,
  { healthPort = unusedPort(), metricsPort = unusedPort() }: {
    readonly healthPort?: number;
    readonly metricsPort?: number;
  } = {},
): readonly string[] {
  return [
    `--control-socket=${folder}/control.sock`,
    `--state-dir=${folder}/state`,
    `--healthz-bind-address=127.0.0.1:${healthPort}`,
    `--metrics-bind-address=127.0.0.1:${metricsPort}`,
  ];
}

/** The configuration of a command line, as root without environment by default, and its flags. */
export async function configurationOf(
  argv: readonly string[],
  user: Partial<LoadDependencies> = {},
): Promise<LoadedConfiguration & { readonly flags: ParsedFlags["values"] }> {
  const { values: flags } = parseFlags(argv);
  const readTextFile = (path: string) => Deno.readTextFile(path);
  const edges = { uid: 0, env: () => undefined, readTextFile, ...user };
  return { ...await loadConfiguration(edges, { flags }), flags };
}
