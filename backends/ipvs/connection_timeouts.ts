import type { Logger } from "../../lib/log/logger.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";

/** Milliseconds; 0 keeps the kernel's value. */
interface ConnectionTimeouts {
  readonly tcp: number;
  readonly tcpFin: number;
  readonly udp: number;
}

const MS_PER_SECOND = 1_000;

/** Sets the configured time-outs. A refusal is logged and does not affect serving. */
export async function setConnectionTimeouts(
  { logger, runner }: { readonly logger: Logger; readonly runner: Pick<IpvsRunner, "setTimeouts"> },
  { tcp, tcpFin, udp }: ConnectionTimeouts,
): Promise<void> {
  if (tcp + tcpFin + udp === 0) return;
  const seconds = (ms: number) => Math.ceil(ms / MS_PER_SECOND);
  try {
    await runner.setTimeouts([seconds(tcp), seconds(tcpFin), seconds(udp)]);
  } catch (error) {
    logger.warn("Cannot set time-outs of IPVS", { error });
  }
}
