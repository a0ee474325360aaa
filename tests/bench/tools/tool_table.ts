import type { BackendMode } from "../../../lib/proxy/backend.ts";

/** The inputs of a tool. */
export interface ToolScene {
  /** A folder that may be written to; `manifests` in it has the objects. */
  readonly folder: string;
  readonly controlSocket: string;
  /** A dump of the node, in its own mode or converted to another one. */
  readonly dumpOf: (mode: BackendMode) => string;
}

/** One tool. */
export interface BenchTool {
  readonly name: string;
  /** Its command line; `run` counts up, for what needs a new name each time. */
  readonly args: (scene: ToolScene, run: number) => readonly string[];
  /** Whether the node is asked: then the longest turn of its event loop is printed too. */
  readonly asksNode: boolean;
  /** Most CPU time, in times of `version`. */
  readonly atMost: number;
}

// Each is at least a third above the measurement, besides the slack of all gates: `version` is
// short, and varies by half between machines. The aim is a second of each.

/** The limit of tools that only read an answer, or a part of a dump; measured 1.0 to 4.1. */
const ASKS = 6;
/** The limit of tools that read a dump and plan it; measured 3.5 to 5.8. */
const PLANS = 8;
/** The limit of tools that render everything; measured 3.8 to 8.2. */
const RENDERS = 12;
/** Two plans, of which one comes from files of YAML or JSON as a person wrote them; measured 13 to 15. */
const PLANS_TWICE = 20;

const MODES = ["iptables", "nftables", "ipvs", "userspace"] as const;

function asking(name: string, ...words: readonly string[]): BenchTool {
  return {
    name,
    args: ({ controlSocket }) => [...words, `--control-socket=${controlSocket}`],
    asksNode: true,
    atMost: ASKS,
  };
}

function reading(
  name: string,
  words: readonly string[],
  { atMost, mode = "iptables" }: { readonly atMost: number; readonly mode?: BackendMode },
): BenchTool {
  const args = ({ dumpOf }: ToolScene) => [...words, `--from=${dumpOf(mode)}`];
  return { name: `${name} --from FILE`, args, asksNode: false, atMost };
}

/** Every tool. */
export const BENCH_TOOLS: readonly BenchTool[] = [
  {
    name: "dump FILE",
    args: ({ folder, controlSocket }, run) => [
      "dump",
      `${folder}/dump-${run}.json`,
      `--control-socket=${controlSocket}`,
    ],
    asksNode: true,
    atMost: ASKS,
  },
  asking("status", "status"),
  asking("status --json", "status", "--json"),
  asking("status --changes", "status", "--changes"),
  asking("explain FROM TO", "explain", "node", "ns1/service-1"),
  asking("explain FROM TO, an unused address", "explain", "outside", "172.30.0.1:81"),
  reading("status", ["status"], { atMost: ASKS }),
  reading("status --changes", ["status", "--changes"], { atMost: ASKS }),
  ...MODES.map((mode) => reading(`render, ${mode}`, ["render"], { mode, atMost: RENDERS })),
  reading("render --service", ["render", "--service=ns1/service-1"], { atMost: PLANS }),
  ...MODES.map((mode) =>
    reading(`explain, ${mode}`, ["explain", "node", "ns1/service-1"], { mode, atMost: PLANS })
  ),
  {
    ...reading("diff", ["diff"], { atMost: PLANS_TWICE }),
    name: "diff --manifests DIR --from FILE",
    args: ({ folder, dumpOf }) => [
      ...["diff", `--manifests=${folder}/manifests`, `--from=${dumpOf("iptables")}`],
    ],
  },
];
