-- wrk: POST appends, round robin over STREAMS streams below PREFIX. SIZE bytes each; with FRAMES, append batches of so
-- many frames. Counts answers other than 200 and 204.
local streams = tonumber(os.getenv("STREAMS") or "64")
local size = tonumber(os.getenv("SIZE") or "256")
local frames = tonumber(os.getenv("FRAMES") or "0")
local prefix = os.getenv("PREFIX")

local payload = string.rep("x", size)
local body, suffix = payload, ""
if frames > 0 then
  local byte = function(shift) return math.floor(size / shift) % 256 end
  body = string.rep(string.char(byte(16777216), byte(65536), byte(256), byte(1)) .. payload, frames)
  suffix = "/append-batch"
end

local requests, next_request = {}, 0
function init()
  local headers = { ["Content-Type"] = "application/octet-stream" }
  for k = 0, streams - 1 do
    requests[k] = wrk.format("POST", prefix .. "s" .. k .. suffix, headers, body)
  end
end

function request()
  next_request = next_request + 1
  return requests[next_request % streams]
end

local refused = 0
function response(status, _, text)
  if status ~= 204 and status ~= 200 then
    refused = refused + 1
    if refused == 1 then print("refused: " .. status .. " " .. text) end
  end
end
