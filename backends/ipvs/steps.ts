import { inPieces } from "../../lib/os/command_input.ts";
import { type IpvsOperation, renderOperations } from "./ipvs_operation.ts";

/** Input for one process. */
export type IpvsStep =
  /** For `ipset restore`, which stops at the first line that fails. */
  | { readonly tool: "ipset"; readonly lines: readonly string[] }
  /** For `iptables-restore --noflush`, which takes each table as a whole or not at all. */
  | { readonly tool: "iptables"; readonly lines: readonly string[] }
  /** For `ipvsadm -R`, which continues after a failure and may not report it. */
  | { readonly tool: "ipvsadm"; readonly operations: readonly IpvsOperation[] }
  /** For `ip -batch -`, which stops at the first line that fails. */
  | { readonly tool: "ip"; readonly lines: readonly string[] };

/** The input in pieces of about 64 KiB. */
export function stepText(step: IpvsStep): Generator<string> {
  return inPieces(step.tool === "ipvsadm" ? renderOperations(step.operations) : step.lines);
}

/** Lines of the input. */
export function stepSize(step: IpvsStep): number {
  return step.tool === "ipvsadm" ? step.operations.length : step.lines.length;
}

/** Counts, never estimates. */
export class WriteFigures {
  readonly #counts = new Map<string, number>();

  /** A step was carried out. */
  add(step: IpvsStep): void {
    this.#count("processes", 1);
    this.#count(step.tool, stepSize(step));
  }

  /** The kernel was read. */
  read(): void {
    this.#count("reads", 1);
  }

  /** Lines for each tool, processes and reads, by name. */
  get operations(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  #count(name: string, by: number): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + by);
  }
}
