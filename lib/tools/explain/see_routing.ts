import { messageOf } from "../../log/message_of.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";

/** What the running process sees of addresses and routes. Plans are made by the command from a dump. */
export interface SeenAnswer {
  /** The addresses that this node holds, by interface. */
  readonly held: readonly { readonly address: IpAddress; readonly device: string }[];
  readonly sessions?: readonly { readonly peer: string; readonly description: string }[];
  readonly sent?: readonly { readonly peer: string; readonly prefixes: readonly string[] }[];
  /** Why the BGP daemon could not be asked. */
  readonly problem?: string;
}

/** Asks the BGP daemon for its sessions and what it sends. */
export async function seeRouting(
  { bgp, held }: {
    /** Absent if BGP is disabled. */
    readonly bgp?: {
      readonly plan: BgpPlan | undefined;
      readonly backend: {
        sessions(plan: BgpPlan): Promise<NonNullable<SeenAnswer["sessions"]>>;
        sentPrefixes(): Promise<ReadonlyMap<string, ReadonlySet<string>>>;
      };
    } | undefined;
    readonly held: Iterable<SeenAnswer["held"][number]>;
  },
): Promise<SeenAnswer> {
  const addresses = [...held].map(({ address, device }) => ({ address, device }));
  if (!bgp?.plan) return { held: addresses };
  try {
    const sessions = await bgp.backend.sessions(bgp.plan);
    const sent = await bgp.backend.sentPrefixes();
    return {
      held: addresses,
      sessions: sessions.map(({ peer, description }) => ({ peer, description })),
      sent: [...sent].map(([peer, prefixes]) => ({ peer, prefixes: [...prefixes] })),
    };
  } catch (error) {
    return { held: addresses, problem: messageOf(error) };
  }
}
