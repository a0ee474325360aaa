/**
 * The frames on a bridge, as `tcpdump` prints them: which link layer address answers for an address,
 * and which one sends from it.
 *
 * @module
 */
import { eventually } from "../eventually.ts";
import type { Namespace } from "../stages/netns.ts";
import type { LineProcess } from "./line_process.ts";

/** A frame that concerns one address. */
export interface LinkFrame {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** The link layer address of the sender. */
  readonly from: string;
  /**
   * `answer`: an ARP reply or a neighbour advertisement for the address. `claim`: an announcement that
   * was not asked for. `data`: a datagram from the address.
   */
  readonly kind: "answer" | "claim" | "data";
  readonly address: string;
}

/** ARP, neighbour discovery, and the answers of Services. */
const FILTER = "arp or (icmp6 and (ip6[40] = 135 or ip6[40] = 136)) or (udp and src port 80)";

const FORMS: readonly (readonly [RegExp, LinkFrame["kind"]])[] = [
  [/ Request who-has (\S+) (?:\(\S+\) )?tell \1,/, "claim"],
  [/ Reply (\S+) is-at /, "answer"],
  [/ neighbor advertisement, tgt is ([0-9a-f:]+)/, "answer"],
  [/: ([0-9a-f:]+) > \S+: ICMP6, neighbor solicitation/, "claim"],
  [/ length \d+: (\S+)\.80 > \S+: UDP/, "data"],
];

/** Reads one line of `tcpdump -e -n -tt`; `undefined` for frames that are none of these. */
export function parseFrame(line: string): LinkFrame | undefined {
  const [, seconds, from] = /^(\d+\.\d+) (\S+) > /.exec(line) ?? [];
  if (seconds === undefined || from === undefined) return undefined;
  for (const [form, kind] of FORMS) {
    const address = form.exec(line)?.[1];
    if (address !== undefined) return { at: Number(seconds) * 1000, from, kind, address };
  }
  return undefined;
}

/** A running `tcpdump`. It ends with its namespace, if not before. */
export class LinkCapture implements AsyncDisposable {
  readonly frames: LinkFrame[] = [];
  readonly #process: LineProcess;
  readonly #reading: Promise<void>;

  private constructor(process: LineProcess) {
    this.#process = process;
    this.#reading = this.#read();
  }

  /** Starts it; it captures when this resolves. */
  static async start(namespace: Namespace, device: string): Promise<LinkCapture> {
    const flags = ["-i", device, "-e", "-n", "-tt", "-l", "--immediate-mode"];
    const process = namespace.start("tcpdump", [...flags, FILTER]);
    await eventually("tcpdump listens", () => process.errors.includes("listening on"));
    return new LinkCapture(process);
  }

  /** The frames for an address since a time. */
  of(address: string, since: number): readonly LinkFrame[] {
    return this.frames.filter((each) => each.address === address && each.at >= since);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.kill();
    await this.#reading;
  }

  async #read(): Promise<void> {
    try {
      for (;;) {
        const frame = parseFrame(await this.#process.nextLine());
        if (frame) this.frames.push(frame);
      }
    } catch (error) {
      if (!this.#process.hasEnded) throw error;
    }
  }
}
