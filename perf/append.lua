-- wrk: POST appends, round robin over STREAMS streams below PREFIX, SIZE bytes each. Counts answers other than 200 and 204.
local streams = tonumber(os.getenv("STREAMS") or "64")
local size = tonumber(os.getenv("SIZE") or "256")
local prefix = os.getenv("PREFIX")

local body = string.rep("x", size)

local requests, next_request = {}, 0
function init()
  local headers = { ["Content-Type"] = "application/octet-stream" }
  for k = 0, streams - 1 do
    requests[k] = wrk.format("POST", prefix .. "s" .. k, headers, body)
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
