/**
 * The routes of the control socket: for each path the parameters, all of them text, and the answer. The
 * server and its clients derive their types and checks from this table.
 *
 * @module
 */
import type { FlagValues } from "../../config/flags.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { WatchedFlow } from "../../proxy/flow_watches.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { NodeDifference } from "../diff/node_difference.ts";
import type { ExplainReport } from "../explain/explain_report.ts";
import type { StatusReport } from "../status/status_report.ts";

/** What the running process sees of addresses and routes. Plans are made by the command from a dump. */
export interface SeenAnswer {
  /** The addresses that this node holds, by interface. */
  readonly held: readonly { readonly address: IpAddress; readonly device: string }[];
  readonly sessions?: readonly { readonly peer: string; readonly description: string }[];
  readonly sent?: readonly { readonly peer: string; readonly prefixes: readonly string[] }[];
  /** Why the BGP daemon could not be asked. */
  readonly problem?: string;
}

interface Route<Name extends string, Answer> {
  readonly parameters: readonly Name[];
  /** Lists in the answer: one without them is from another program. */
  readonly lists: readonly string[];
  /** Longest time to the end of the answer. */
  readonly timeoutMs: number;
  /** For its type only. */
  readonly answer?: Answer;
}

function answers<Answer>() {
  return <const Name extends string = never>(
    parameters: readonly Name[] = [],
    { lists = [], timeoutMs = 5000 }: {
      readonly lists?: readonly (keyof Answer & string)[];
      readonly timeoutMs?: number;
    } = {},
  ): Route<Name, Answer> => ({ parameters, lists, timeoutMs });
}

/** The kernel takes seconds to list 44,000 Services, and longer on a busy machine. */
const COMPARISON = { lists: ["families"], timeoutMs: 150_000 } as const;

/** Those that change something are asked by POST. A parameter without a value is a switch. */
export const ROUTES = {
  "/status": answers<StatusReport>()(["brief"], { lists: ["families", "sources", "hostSettings"] }),
  "/changes": answers<ChangesReport>()(["last"], { lists: ["entries", "syncs"] }),
  /** Names that begin so, for the completion of a shell. */
  "/services": answers<readonly string[]>()(["prefix"]),
  "/flags": answers<FlagValues>()(),
  "/dump": answers<unknown>()(["inputs"]),
  "/explain": answers<ExplainReport>()(["from", "to", "sni", "brief"], {
    lists: ["packets", "assumptions"],
    // The comparison with the kernel may take half of it.
    timeoutMs: 10_000,
  }),
  "/flow": answers<readonly WatchedFlow[]>()(
    ["id", "protocol", "to", "port", "from", "sourcePort"],
  ),
  "/difference": answers<NodeDifference>()(["family", "service"], COMPARISON),
  "POST /difference": answers<NodeDifference>()(["family"], COMPARISON),
  "/routing/seen": answers<SeenAnswer>()([], { lists: ["held"] }),
};

/** A path, after the method if that is not GET. */
export type RoutePath = keyof typeof ROUTES;

/** The parameters of a route. */
export type Query<Path extends RoutePath> = {
  readonly [Name in (typeof ROUTES)[Path]["parameters"][number]]?: string | undefined;
};

/** The answer of a route, which is sent as JSON. */
export type Answer<Path extends RoutePath> = Exclude<(typeof ROUTES)[Path]["answer"], undefined>;

/** What answers. `signal` is aborted when the client disconnects. */
export type Routes = {
  readonly [Path in RoutePath]: (
    query: Query<Path>,
    signal?: AbortSignal,
  ) => Promise<Answer<Path>>;
};
