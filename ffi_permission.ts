/**
 * Gives up the permission to load libraries, in every process but a data process: an executable of
 * `deno compile` has one set of permissions for all. `main.ts` imports this first.
 *
 * @module
 */
import { DATA_PROCESS } from "./lib/os/data_process_protocol.ts";

if (Deno.args[0] !== DATA_PROCESS) Deno.permissions.revokeSync({ name: "ffi" });
