/**
 * Which mode a run takes: what was asked for, against what this build has and the host can do.
 *
 * @module
 */
import type { ModeRequest } from "../config/mode_request.ts";
import type { BackendMode } from "../proxy/backend.ts";
import type { Dependencies } from "./dependencies.ts";
import type { Logger } from "../log/logger.ts";

/** The modes of `auto`, best first. IPVS is for those who ask for it. */
export const AUTO_ORDER: readonly BackendMode[] = ["nftables", "iptables", "userspace"];

/** The mode that was asked for cannot be had. */
export class ModeError extends Error {
  override name = "ModeError";
}

/**
 * Chooses. A mode that was asked for by name is taken or refused with a {@linkcode ModeError}, never
 * replaced: upstream's silent fallbacks left nodes in modes that nobody had asked for.
 */
export function chooseMode(
  { backends, logger }: Pick<Dependencies, "backends"> & { readonly logger: Logger },
  request: ModeRequest,
): Promise<BackendMode> {
  const has = Object.keys(backends) as BackendMode[];
  if (request !== "auto" && request !== "default") {
    if (has.includes(request)) return Promise.resolve(request);
    return Promise.reject(
      new ModeError(`Cannot run in mode '${request}': this release has ${has.join(", ")} only`),
    );
  }
  const mode = AUTO_ORDER.find((candidate) => has.includes(candidate)) ?? has[0]!;
  logger.info("Chose a mode, since none was asked for", { mode });
  return Promise.resolve(mode);
}
