// @ts-types="./mod.d.ts"
export { parse, stringify } from "npm:deno-std@1.4.0/yaml/mod.js";
